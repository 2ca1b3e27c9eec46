"""Gradients per second of several samplers, in turns, so that all see the same machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from effective import others, ours
from effective.measure import Place
from effective.targets import Target

TURN = 1.0  # CPU-seconds of a turn, about


def rates(players: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Gradients of all chains per CPU-second, `rounds` of each method, in turns."""
    measured: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(rounds):
        for name, play in players.items():
            measured[name].append(play())
    return measured


def player(target: Target, method: str, ratio: float, place: Place) -> Callable[[], float]:
    """A turn: gradients per second of a run that takes about a second; compiled before."""

    def rate(steps: int) -> tuple[float, float]:
        shorter = replace(place, steps=steps, full=None)
        if method in ours.METHODS:
            made = ours.run(target, method, ratio, shorter, compile=True)
        else:
            made = others.run(target, method, ratio, shorter)
        return made.gradients * len(place.starts) / made.seconds, made.seconds

    least = 800  # steps of the first run, which compiles
    rate(least)
    _, taken = rate(least)
    steps = min(place.steps, max(least, round(least * TURN / max(taken, 1e-3) / 400) * 400))
    if steps != least:
        rate(steps)  # programs of blackjax have a fixed length: compiled anew
    return lambda: rate(steps)[0]

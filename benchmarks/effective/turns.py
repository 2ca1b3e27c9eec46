"""Gradients per second of several samplers, in turns, so that all see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from effective import others, ours
from effective.measure import Place, Run
from effective.targets import Target

TURN = 0.5  # CPU-seconds of a turn, about
FEWEST = 160  # steps of a turn: ten calls of what this library compiles


@dataclass(frozen=True)
class Player:
    """A sampler that is ready: its turn, and the seconds by the clock that compiling took."""

    play: Callable[[], float]
    compiling: float


def timed(players: Mapping[str, Player], rounds: int) -> dict[str, Any]:
    """Gradients of all chains per CPU-second, `rounds` of each method, and seconds of compiling.

    A first round does not count: what is compiled there was dropped from a full cache.
    """
    rates: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(rounds + 1):
        for name, player in players.items():
            rate = player.play()
            if turn:
                rates[name].append(rate)
    return {"rates": rates, "compiling": {name: p.compiling for name, p in players.items()}}


def player(target: Target, method: str, ratio: float, place: Place, turn: float = TURN) -> Player:
    """Turns of about `turn` CPU-seconds, whose program is compiled before."""

    def play(steps: int) -> Run:
        spot = replace(place, steps=steps, full=None, transitions=max(4, steps // 40))
        if method in ours.METHODS:
            return ours.run(target, method, ratio, spot, compile=True)
        return others.run(target, method, ratio, spot)

    def rate(steps: int) -> float:
        made = play(steps)
        return made.gradients * len(place.starts) / made.seconds

    begin = time.perf_counter()
    play(FEWEST)  # compiles
    between = time.perf_counter()
    again = play(FEWEST)
    compiling = between - begin - (time.perf_counter() - between)
    steps = steps_of(turn, again.seconds, place.steps)
    if steps != FEWEST:
        play(steps)  # programs of blackjax have a fixed length: compiled anew
    return Player(lambda: rate(steps), max(0.0, compiling))


def steps_of(turn: float, taken: float, most: int) -> int:
    """Steps of a turn from the seconds of the fewest, in multiples of these.

    >>> steps_of(1.0, 0.3, 2000), steps_of(1.0, 5.0, 2000), steps_of(1.0, 1e-9, 2000)
    (480, 160, 1920)
    """
    times = round(turn / max(taken, 1e-6))
    return FEWEST * max(1, min(times, most // FEWEST))

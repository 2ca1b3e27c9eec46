"""Chains that became NaN or infinite: noticed once a block of steps, then named by a second run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from entropy_mcmc.errors import NonFiniteError


class DivergedError(NonFiniteError):
    """A chain that became NaN or infinite, by its number and the step.

    Attributes:
        last: Its θ before that step, where it is known.
    """

    def __init__(self, chain: int, step: int, remedy: str, last: Tensor | None = None) -> None:
        super().__init__(f"chain {chain} became NaN or infinite at step {step}; {remedy}")
        self.chain, self.step, self.last = chain, step, last


Trace = Sequence[Tensor]  # variables after every step of a call, (chain, step, element)
Replay = Callable[[Callable[[int, Trace], None]], Sequence[Tensor]]


def all_finite(state: Sequence[Tensor]) -> bool:
    """Whether every number is; the only place that waits for the device.

    A number that is not finite never becomes finite again, so one look after many steps is enough.
    """
    return all(bool(value.isfinite().all()) for value in state)


def report_divergence(replay: Replay, first_chain: int, steps: int, lr: float) -> None:
    """Raise for the first step, before `steps`, after which a chain of a block is not finite.

    `replay(look)` runs the block again and shows `look(step, trace)` every call of it.
    """
    first: list[tuple[int, int]] = []
    seen: list[Tensor] = []  # θ of all chains after each step of the last call and the one before

    def look(step: int, trace: Trace) -> None:
        if not first:
            bad = torch.stack([~part.isfinite().all(dim=-1) for part in trace]).any(dim=0)
            places = [(step + int(k), int(chain)) for chain, k in bad.nonzero()]
            first.extend(sorted(places)[:1])
            seen[:] = [*seen[-1:], *trace[0][:, : first[0][0] - step if first else None].unbind(1)]

    end = replay(look)
    if not first:  # what the trace does not hold, velocities for example
        chains = torch.stack([~part.isfinite().all(dim=-1) for part in end]).any(dim=0)
        first.append((steps - 1, int(chains.nonzero()[0])))
    step, chain = first[0]
    if step >= steps:
        return  # in steps that a compiled call makes past the end, and that are dropped
    raise DivergedError(
        first_chain + chain,
        step,
        f"use a smaller lr, got lr={lr}, or look for NaN in the data and for log(0) in the energy",
        last=seen[-1][chain] if seen else None,
    )

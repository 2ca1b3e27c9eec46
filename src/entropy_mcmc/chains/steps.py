"""Several steps of a group of chains in one call, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.chains.compilation import Call, compiled, constants
from entropy_mcmc.chains.divergence import Trace
from entropy_mcmc.chains.energy import Energy
from entropy_mcmc.chains.stack import Method, move
from entropy_mcmc.samplers.kernel.compiled import own_code
from entropy_mcmc.samplers.rule import Eps

REMEMBERED = 16  # compiled calls


class Steps:
    """Several steps of a group of chains in one call, which is compiled at the first if asked for.

    All groups have the same shapes, so one compilation serves them.
    """

    def __init__(
        self, energy: Energy, method: Method, kept: Sequence[str], use_compiler: bool
    ) -> None:
        self._energy, self._method, self._kept = energy, method, tuple(kept)
        self._use_compiler = use_compiler
        self._calls: dict[int, Call] = {}  # by the number of steps before the method settles

    def block(
        self,
        calls: Sequence[Sequence[Tensor]],
        state: list[Tensor],
        start: int,
        show: Callable[[int, Trace], None],
    ) -> list[Tensor]:
        """The state after calls that begin at step `start`; `show` sees the trace of each."""
        for drawn in calls:
            count = len(drawn[0])
            arguments = [*drawn, *self._energy.data, *state]
            early = self._method.before_settling(start, count)
            if early not in self._calls:
                self._calls[early] = self._make(early, arguments)
            moved = self._calls[early](arguments)
            show(start, moved[len(state) :])
            state, start = list(moved[: len(state)]), start + count
        return state

    def _make(self, early: int, arguments: list[Tensor]) -> Call:
        return make_call(
            self._energy, self._method, self._kept, early, arguments, self._use_compiler
        )


def make_call(
    energy: Energy,
    method: Method,
    kept: tuple[str, ...],
    early: int,
    arguments: list[Tensor],
    use_compiler: bool,
) -> Call:
    """Several steps in one call, the first `early` of them before the method settles.

    From draws (normals, normals, rows), data and variables to new variables, and those named by
    `kept` after every step, (chain, step, element).
    """

    def advance(first: Tensor, second: Tensor, rows: Tensor, *others: Tensor) -> list[Tensor]:
        data, variables = others[: len(energy.data)], list(others[len(energy.data) :])
        trace = []
        for k in range(rows.shape[0]):
            slope = energy.gradients(variables[0], rows[k], data)
            eps = rule_normals(method, first[k], second[k])
            moved = move(method.first if k < early else method.settled, variables, slope, eps)
            variables = list(moved)
            trace.append([getattr(moved, name) for name in kept])
        return [*variables, *(torch.stack(column, dim=1) for column in zip(*trace, strict=True))]

    if not use_compiler:
        return lambda tensors: advance(*tensors)
    # A second run of the same energy on data of the same shapes must not compile again.
    shapes = tuple((t.shape, t.stride(), t.dtype, t.device) for t in arguments)
    plain = constants(energy.mean_loss)
    what = (energy.mean_loss, plain, energy.layout, energy.batch_rows, energy.shared)
    rules = (early and method.first, early, method.settled, kept)
    key = (*what, *rules, shapes, torch.get_num_threads())
    if key not in _compiled:
        if len(_compiled) >= REMEMBERED:
            _compiled.clear()
        function = own_code(advance, method.settled.rule)
        _compiled[key] = compiled(function, arguments, direct=plain is not None)
    return _compiled[key]


def rule_normals(method: Method, first: Tensor, second: Tensor) -> Eps:
    """What the rule takes of a step's normals; (pair, chain, element) if it averages noise."""
    if not method.normals:
        return None
    if method.pairs == 1:
        return first, second
    return (first[0], second[0]), (first[1], second[1])


_compiled: dict[tuple[Any, ...], Call] = {}

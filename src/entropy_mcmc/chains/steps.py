"""Several steps of a group of chains in one call, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.chains.compilation import Call, compiled, constants
from entropy_mcmc.chains.divergence import Trace
from entropy_mcmc.chains.energy import Energy
from entropy_mcmc.chains.method import Method
from entropy_mcmc.samplers import fused

REMEMBERED = 16  # compiled calls


class Steps:
    """Several steps of a group of chains in one call, which is compiled at the first if asked for.

    All groups have the same shapes, so one compilation serves them.
    """

    def __init__(self, energy: Energy, method: Method, use_compiler: bool) -> None:
        self._energy, self._method, self._use_compiler = energy, method, use_compiler
        self._call: Call | None = None

    def block(
        self,
        calls: Sequence[Sequence[Tensor]],
        state: list[Tensor],
        start: int,
        show: Callable[[int, Trace], None],
    ) -> list[Tensor]:
        """The state after calls that begin at step `start`; `show` sees the trace of each."""
        for drawn in calls:
            arguments = [*drawn, *self._energy.data, *state]
            if self._call is None:
                self._call = make_call(self._energy, self._method, arguments, self._use_compiler)
            moved = self._call(arguments)
            show(start, moved[len(state) :])
            start += len(drawn[0])
            state = list(moved[: len(state)])
        return state


def make_call(energy: Energy, method: Method, arguments: list[Tensor], use_compiler: bool) -> Call:
    """Several steps in one call.

    From draws (normals, normals, rows), data and variables to new variables, and the first two of
    them after every step, (chain, step, element).
    """

    def advance(first: Tensor, second: Tensor, rows: Tensor, *others: Tensor) -> list[Tensor]:
        data, variables = others[: len(energy.data)], list(others[len(energy.data) :])
        trace = []
        for k in range(rows.shape[0]):
            slope = energy.gradients(variables[0], rows[k], data)
            eps = (first[k], second[k]) if method.normals else None
            variables = list(method.rule([*variables, slope], eps, method.coefficients))
            trace.append(variables[:2])
        kept = [torch.stack(column, dim=1) for column in zip(*trace, strict=True)]
        return [*variables, *kept]

    if not use_compiler:
        return lambda tensors: advance(*tensors)
    # A second run of the same energy on data of the same shapes must not compile again.
    shapes = tuple((t.shape, t.stride(), t.dtype, t.device) for t in arguments)
    threads = torch.get_num_threads()
    plain = constants(energy.mean_loss)
    what = (energy.mean_loss, plain, energy.layout, energy.batch_rows)
    key = (*what, method.rule, method.coefficients, shapes, threads)
    if key not in _compiled:
        if len(_compiled) >= REMEMBERED:
            _compiled.clear()
        _compiled[key] = compiled(
            fused.own_code(advance, method.rule), arguments, direct=plain is not None
        )
    return _compiled[key]


_compiled: dict[tuple[Any, ...], Call] = {}

"""What a sampler keeps beside each parameter: in `state`, and in at least float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_mcmc.samplers.kernel.layout import Layout
from entropy_mcmc.samplers.kernel.parameters import Group
from entropy_mcmc.samplers.rule import Update, number


class WithVariables(Optimizer):
    """An optimizer with θ in at least float32, and further variables."""

    def _theta(self, param: Tensor) -> Tensor:
        """θ in at least float32: the parameter itself, or the master of a bfloat16 one."""
        if param.dtype != torch.bfloat16:
            return param
        return self._variable(param, "master", param)

    def _variable(self, param: Tensor, name: str, start: Tensor | float) -> Tensor:
        """A variable kept beside `param`: starts as a copy of a tensor, or filled with a number."""
        state = self.state[param]
        if name not in state:
            dtype = torch.float32 if param.dtype == torch.bfloat16 else param.dtype
            source = start if isinstance(start, Tensor) else param
            value = source.detach().to(dtype, copy=True, memory_format=torch.preserve_format)
            state[name] = value if isinstance(start, Tensor) else value.fill_(start)
        value = state[name]
        assert isinstance(value, Tensor)
        return value

    def _variables(
        self, update: Update, group: Group, params: list[Tensor], layout: Layout | None = None
    ) -> list[list[Tensor]]:
        """The columns of `update.variables`: θ, then what is kept beside each parameter."""
        low = layout.low if layout else torch.bfloat16 in [p.dtype for p in params]
        columns = [[self._theta(p) for p in params] if low else params]
        if not update.starts:
            return columns  # and no empty entries in `state`
        states = layout.states(self.state) if layout else [self.state[p] for p in params]
        for name, start in update.starts.items():
            if not all([name in state for state in states]):
                for p, theta in zip(params, columns[0], strict=True):
                    at = theta if start == "theta" else number(start, group)
                    self._variable(p, name, at)
            columns.append([state[name] for state in states])
        return columns

    def _publish(self, params: list[Tensor]) -> None:
        """Round float32 masters into their bfloat16 parameters."""
        low = [p for p in params if p.dtype == torch.bfloat16]
        if low:
            torch._foreach_copy_(low, [self._theta(p) for p in low])

    @contextmanager
    def _restored_on_error(self, params: list[Tensor]) -> Iterator[list[Tensor]]:
        """Yield copies of θ; if the body raises, put them back, so that no perturbation stays."""
        copies = [self._theta(p).detach().clone() for p in params]
        try:
            yield copies
        except BaseException:
            self._restore(params, copies)
            raise

    @torch.no_grad()
    def _restore(self, params: list[Tensor], copies: list[Tensor]) -> None:
        torch._foreach_copy_([self._theta(p) for p in params], copies)
        self._publish(params)

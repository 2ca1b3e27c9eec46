"""`vmap` over many states by calls whose memory is bounded, whatever the data and the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

NUMBERS = 2**23  # that the tensors of one call may hold together, about; one state may need more
MOST = 2**12  # states of a call


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers of all tensors that are made under it; views are none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {_storage(one) for one in args if isinstance(one, Tensor)}
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, Tensor) and _storage(one) not in given:
                self.numbers += one.numel()
        return result


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class InParts:
    """vmap(function) of states (row, …), so many at a time that a call makes few numbers.

    How many that are is counted in the call of the first state.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function, self.at_a_time = vmap(function), 0

    def __call__(self, states: Tensor) -> Tensor:
        """The function of each state."""
        if not self.at_a_time:
            with Made() as made:
                first = self.function(states[:1])
            self.at_a_time = min(MOST, max(1, NUMBERS // max(made.numbers, 1)))
            return torch.cat([first, self(states[1:])]) if len(states) > 1 else first
        results: Tensor | None = None
        for start in range(0, len(states), self.at_a_time):
            part = self.function(states[start : start + self.at_a_time])
            # Copied at once: small results that stay among large tensors keep the heap growing.
            if results is None:
                results = part.new_empty(len(states), *part.shape[1:])
            results[start : start + len(part)] = part
        assert results is not None
        return results

"""Forward passes of a model at many weights: one after another, or small ones side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from entropy_mcmc.errors import ConfigError, EntropyMCMCError, StateError
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.model_inputs import Batches, call
from entropy_mcmc.posterior.model_tensors import unwrap
from entropy_mcmc.posterior.private_copy import NotPrivate, Workspace, in_place, private

# A sample, and a function that fills a model with it.
Load = tuple[Sample, Callable[[Workspace], None]]
Output = Callable[[Any], Tensor]

# Side by side pays while calls cost more than arithmetic: see benchmarks/predictive.py.
SMALL_MODEL = 1_000
_GROUP_NUMEL = 4_000_000
GROUP = 64
_TRIAL = Lock()


@dataclass(frozen=True)
class Piece:
    """Predictions of k samples on one batch.

    Attributes:
        samples: The k samples.
        index: The number of the batch, from 0.
        values: Shape (k, rows, …).
    """

    samples: tuple[Sample, ...]
    index: int
    values: Tensor


def tensor_of(result: Any, output: Output | None) -> Tensor:
    """The tensor in a model's result."""
    tensor = result if output is None else output(result)
    if not isinstance(tensor, Tensor):
        raise ConfigError(
            f"the model returned {type(tensor).__name__}, not a tensor; pass output=, "
            "for example output=lambda result: result.logits"
        )
    return tensor


def pieces(
    model: nn.Module,
    loads: Callable[[], Iterator[Load]],
    batches: Batches,
    transform: Output,
    *,
    vectorize: bool | None,
) -> Iterator[Piece]:
    """Transformed outputs, sample by sample and batch by batch.

    Args:
        model: Left as it is: the passes are made in a copy (see `private_copy`).
        loads: Starts a pass over the samples.
        batches: Read once per sample, or per group of samples.
        transform: Model result → tensor of rows.
        vectorize: True evaluates samples side by side, False never, None where it can pay.
    """
    model = unwrap(model)
    with private(model) as work:
        if work is not None:
            try:
                yield from _pieces_in(work, loads, batches, transform, vectorize)
                return
            except NotPrivate:  # found out at the first call: nothing was yielded
                pass
    with in_place(model) as work:
        yield from _pieces_in(work, loads, batches, transform, vectorize)


def _pieces_in(
    work: Workspace,
    loads: Callable[[], Iterator[Load]],
    batches: Batches,
    transform: Output,
    vectorize: bool | None,
) -> Iterator[Piece]:
    if vectorize or (vectorize is None and _can_pay(work)):
        problem = _trial(work, loads, batches, transform)
        if problem is None:
            yield from _side_by_side(work, loads(), batches, transform)
            return
        if vectorize:
            raise StateError(
                f"this model cannot be evaluated for many samples at once ({problem}); "
                "use vectorize=None or False"
            )
    for sample, fill in loads():
        fill(work)
        for index, inputs in enumerate(batches):
            yield Piece((sample,), index, transform(_called(work, inputs))[None])


def _called(work: Workspace, inputs: Any) -> Any:
    """The model's result; an error of its own says what it was given."""
    try:
        return work.call(work.model, inputs)
    except (RuntimeError, TypeError, ValueError) as error:
        error.add_note(
            f"The posterior called its model with {_shape(inputs)}: x must be what model(x) takes, "
            "with one row per example."
        )
        raise


def _shape(inputs: Any) -> str:
    if isinstance(inputs, Mapping):
        return ", ".join(f"{key}: {_shape(value)}" for key, value in inputs.items())
    if isinstance(inputs, Tensor):
        return f"a tensor of shape {tuple(inputs.shape)} and {inputs.dtype}"
    return f"an object of type {type(inputs).__name__}"


def _can_pay(work: Workspace) -> bool:
    model = work.model
    plain = not any(hasattr(module, "_orig_mod") for module in model.modules())
    # Under vmap a convolution becomes a grouped one, which is slow on the CPU.
    dense = not any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules())
    return plain and dense and work.layout.size <= SMALL_MODEL


def _side_by_side(
    work: Workspace, loads: Iterator[Load], batches: Batches, transform: Output
) -> Iterator[Piece]:
    size = max(1, min(GROUP, _GROUP_NUMEL // max(work.layout.size, 1)))
    while group := [(sample, _state(work, fill)) for sample, fill in islice(loads, size)]:
        run = _together(work.model, _stack([state for _, state in group]), transform)
        samples = tuple(sample for sample, _ in group)
        for index, inputs in enumerate(batches):
            yield Piece(samples, index, run(inputs))


def _state(work: Workspace, fill: Callable[[Workspace], None]) -> dict[str, Tensor]:
    fill(work)
    return {slot.path: slot.tensor.detach().clone() for slot in work.layout.slots.values()}


def _stack(group: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {path: torch.stack([state[path] for state in group]) for path in group[0]}


def _together(
    model: nn.Module, states: dict[str, Tensor], transform: Output
) -> Callable[[Any], Tensor]:
    class Called(nn.Module):
        """Gives `functional_call` a forward that takes the inputs as they are."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, inputs: Any) -> Tensor:
            return transform(call(self.inner, inputs))

    wrapped = Called()

    def one(state: dict[str, Tensor], inputs: Any) -> Tensor:
        named = {f"inner.{path}": value for path, value in state.items()}
        result: Tensor = functional_call(wrapped, named, (inputs,))
        return result

    return lambda inputs: vmap(one, in_dims=(0, None))(states, inputs)


def _trial(
    work: Workspace,
    loads: Callable[[], Iterator[Load]],
    batches: Batches,
    transform: Output,
) -> str | None:
    """Why this model cannot be evaluated side by side, or None.

    Two samples on the first batch, both ways. Comparing values matters: some modules (RNNs) keep
    references to their weights, and would silently ignore those of the samples.
    """
    inputs = batches.first()
    alone: list[Tensor] = []
    states: list[dict[str, Tensor]] = []
    for _, fill in islice(loads(), 2):
        states.append(_state(work, fill))
        alone.append(transform(_called(work, inputs)))
    if not states:
        return "there are no samples"
    try:
        with _without_loops():
            together = _together(work.model, _stack(states), transform)(inputs)
    except EntropyMCMCError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    reference = torch.stack(alone)
    same = together.shape == reference.shape and torch.allclose(
        together, reference, rtol=1e-3, atol=1e-4, equal_nan=True
    )
    return None if same else "its outputs differ from those of one sample at a time"


@contextmanager
def _without_loops() -> Iterator[None]:
    """Make `vmap` raise where it would only loop over the samples.

    It warns of this as well; but a filter of warnings is the whole process's, as is this setting,
    which only another thread's `vmap` could notice.
    """
    functorch: Any = torch._C._functorch
    with _TRIAL:
        before = functorch._is_vmap_fallback_enabled()
        functorch._set_vmap_fallback_enabled(False)
        try:
            yield
        finally:
            functorch._set_vmap_fallback_enabled(before)

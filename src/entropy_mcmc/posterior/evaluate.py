"""A model evaluated at many weights: one sample after another, or small ones side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from entropy_mcmc.errors import ConfigError, EntropyMCMCError, StateError
from entropy_mcmc.posterior.batches import Batches, call
from entropy_mcmc.posterior.tensors import Layout, layout, unwrap

# Fills a model's slots with one sample; yields nothing: the model is the result.
Load = Callable[[Layout], None]
Output = Callable[[Any], Tensor]
# (index of the batch, values of k samples on that batch: shape (k, rows, …))
Piece = tuple[int, Tensor]

# Side by side pays while calls cost more than arithmetic: see benchmarks/predictive.py.
SMALL_MODEL = 10_000
_GROUP_NUMEL = 4_000_000
_GROUP = 64


@contextmanager
def borrowed(model: nn.Module) -> Iterator[Layout]:
    """Lend a model in eval mode; weights, buffers and modes come back, also after an error."""
    found = layout(model)
    modes = [(module, module.training) for module in model.modules()]
    backup = {name: slot.tensor.data.clone() for name, slot in found.slots.items()}
    try:
        model.eval()
        with torch.no_grad():
            yield found
    finally:
        with torch.no_grad():
            for name, slot in found.slots.items():
                slot.tensor.data.copy_(backup[name])
        for module, mode in modes:
            module.training = mode


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
        model: Borrowed while the iterator runs.
        loads: Starts a pass over the samples.
        batches: Read once per sample, or per group of samples.
        transform: Model result → tensor of rows.
        vectorize: True evaluates samples side by side, False never, None where it can pay.
    """
    model = unwrap(model)
    with borrowed(model) as found:
        if vectorize or (vectorize is None and _can_pay(model, found)):
            problem = _trial(model, found, loads, batches, transform)
            if problem is None:
                yield from _side_by_side(model, found, loads(), batches, transform)
                return
            if vectorize:
                raise StateError(
                    f"this model cannot be evaluated for many samples at once ({problem}); "
                    "use vectorize=None or False"
                )
        for load in loads():
            load(found)
            for index, inputs in enumerate(batches):
                yield index, transform(_called(model, inputs))[None]


def _called(model: nn.Module, inputs: Any) -> Any:
    """The model's result; an error of its own says what it was given."""
    try:
        return call(model, inputs)
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


def _can_pay(model: nn.Module, found: Layout) -> bool:
    plain = not any(hasattr(module, "_orig_mod") for module in model.modules())
    # Under vmap a convolution becomes a grouped one, which is slow on the CPU.
    dense = not any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules())
    return plain and dense and found.size <= SMALL_MODEL


def _side_by_side(
    model: nn.Module, found: Layout, loads: Iterator[Load], batches: Batches, transform: Output
) -> Iterator[Piece]:
    size = max(1, min(_GROUP, _GROUP_NUMEL // max(found.size, 1)))
    for states in _groups(found, loads, size):
        run = _together(model, states, transform)
        for index, inputs in enumerate(batches):
            yield index, run(inputs)


def _groups(found: Layout, loads: Iterator[Load], size: int) -> Iterator[dict[str, Tensor]]:
    group: list[dict[str, Tensor]] = []
    for load in loads:
        load(found)
        group.append({slot.path: slot.tensor.detach().clone() for slot in found.slots.values()})
        if len(group) == size:
            yield _stack(group)
            group = []
    if group:
        yield _stack(group)


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
    model: nn.Module,
    found: Layout,
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
    for load, _ in zip(loads(), range(2), strict=False):
        load(found)
        states.append({s.path: s.tensor.detach().clone() for s in found.slots.values()})
        alone.append(transform(_called(model, inputs)))
    if not states:
        return "there are no samples"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            together = _together(model, _stack(states), transform)(inputs)
    except EntropyMCMCError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    reference = torch.stack(alone)
    same = together.shape == reference.shape and torch.allclose(
        together, reference, rtol=1e-3, atol=1e-4, equal_nan=True
    )
    return None if same else "its outputs differ from those of one sample at a time"

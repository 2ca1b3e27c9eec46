"""Predictions of small networks with the weights of all samples in memory, side by side.

A network of a few thousand weights computes faster than it is copied and filled. Where all its
layers are known (`stacked_layers.py`), its samples are read once and kept, stacked, and a
prediction is some batched products: nothing of the user's model is called, copied or changed, and
the stack is only read, so that threads share it. Before each prediction the files are looked at: a
sample that was added, dropped, replaced or damaged is seen, and so is a change of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from entropy_mcmc import stacked_layers
from entropy_mcmc.errors import EntropyMCMCError
from entropy_mcmc.posterior.forward import GROUP, Output, Piece
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.model_inputs import Batches
from entropy_mcmc.posterior.model_tensors import check_match, layout, unwrap
from entropy_mcmc.posterior.sample_reader import Reader
from entropy_mcmc.posterior.store import Signatures
from entropy_mcmc.stacked_layers import Layer

LARGEST = 2**15  # weights of a network: beyond, arithmetic is what it costs
MOST = 16 * 2**20  # bytes of all samples that are kept
AT_A_TIME = 2**17  # numbers of a hidden layer that fit a core's cache
LEAST = 4  # samples at a time, below which calls cost more than the cache saves

Form = tuple[tuple[Any, ...], ...]


class _Kept(NamedTuple):
    """A stack, and what it was made of."""

    samples: Sequence[Sample]
    form: Form
    files: Signatures
    state: dict[str, Tensor]


class StackedSamples:
    """The stack of the last prediction, if its samples are small enough to be kept."""

    def __init__(self, reader: Reader) -> None:
        self._reader = Reader(reader.store, skip_damaged=False)
        self._kept: _Kept | None = None

    def pieces(
        self,
        model: nn.Module,
        samples: Sequence[Sample],
        batches: Batches,
        transform: Output,
        otherwise: Callable[[], Iterator[Piece]],
    ) -> Iterator[Piece]:
        """Predictions, from the stack where that is possible, else those of `otherwise`.

        Args:
            model: The network; only its form is read.
            samples: The samples.
            batches: Read once for each 64 samples.
            transform: Output (rows, …) of a network → prediction (rows, …), row by row.
            otherwise: The general way, which also has the words for what is wrong.
        """
        layers = stacked_layers.known_layers(unwrap(model), training=False)
        state = None if layers is None else self._stack(unwrap(model), layers, samples)
        if layers is None or state is None:
            yield from otherwise()
            return
        several = len(samples) > GROUP
        begun = False
        for start in range(0, len(samples), GROUP):
            group = tuple(samples[start : start + GROUP])
            part = _part(state, start, GROUP) if several else state
            for index, inputs in enumerate(batches if several else batches.once()):
                values = _outputs(layers, part, len(group), inputs, transform)
                if values is None and not begun:
                    yield from otherwise()
                    return
                assert values is not None, "a batch of another form than the first"
                begun = True
                yield Piece(group, index, values)

    def _stack(
        self, model: nn.Module, layers: list[Layer], samples: Sequence[Sample]
    ) -> dict[str, Tensor] | None:
        """The weights of all samples by name, (samples, …) each; None where they are not kept."""
        form = _form(layers)
        kept = self._kept
        if kept is None or kept.form != form or kept.samples != samples or not kept.files.hold():
            self._kept = kept = self._read(model, form, samples)
        return None if kept is None else kept.state

    def _read(self, model: nn.Module, form: Form, samples: Sequence[Sample]) -> _Kept | None:
        weights, size = sum(each[-1] for each in form), sum(each[-1] * each[-2] for each in form)
        if not 0 < weights <= LARGEST or size * len(samples) > MOST:
            return None
        files = self._reader.store.signatures(samples)
        try:
            state = None if files is None else self._joined(model, samples)
        except EntropyMCMCError:  # the general way says it
            return None
        if files is None or state is None or not files.hold():
            return None
        if any(each[0] not in state for each in form):  # a tied weight
            return None
        return _Kept(samples, form, files, state)

    def _joined(self, model: nn.Module, samples: Sequence[Sample]) -> dict[str, Tensor] | None:
        slots = layout(model)
        columns: dict[str, list[Tensor]] = {slot.path: [] for slot in slots.stored.values()}
        read = []
        for sample, tensors in self._reader.opened(samples):
            check_match(slots, {name: t.shape for name, t in tensors.items()}, sample.file.name)
            read.append(sample)
            for name, slot in slots.stored.items():
                value = tensors[name].read()
                columns[slot.path].append(value.to(slot.tensor.device, slot.tensor.dtype))
        if read != list(samples):  # the writer has moved on
            return None
        return {path: torch.stack(column) for path, column in columns.items()}


def _form(layers: list[Layer]) -> Form:
    """What a stack must fit; a tensor of a kind of its own (a sharded one) fits none."""
    return tuple(
        (name, t.shape, t.dtype, t.device, t.element_size(), t.numel())
        if type(t) in (nn.Parameter, Tensor)
        else (name, t.element_size(), LARGEST + 1)
        for layer in layers
        for name, t in layer.tensors()
    )


@torch.no_grad()
def _outputs(
    layers: list[Layer], state: dict[str, Tensor], number: int, inputs: Any, transform: Output
) -> Tensor | None:
    """Predictions (samples, rows, …) on one batch, as many samples at a time as fit the cache.

    None where the layers do not take the inputs.
    """
    many = inputs.expand(number, *inputs.shape) if isinstance(inputs, Tensor) else inputs
    if not stacked_layers.takes(layers, many):
        return None
    widest = max(value.shape[1] for value in state.values() if value.dim() > 1)
    size = max(LEAST, AT_A_TIME // max(widest * many.shape[1], 1))
    try:
        if size >= number:
            outputs = stacked_layers.run(layers, many, state)
        else:
            starts = range(0, number, size)
            parts = [(many[i : i + size], _part(state, i, size)) for i in starts]
            outputs = torch.cat([stacked_layers.run(layers, *part) for part in parts])
    except RuntimeError:  # of torch: inputs of another width or type than the first layer's
        return None
    return _rows(outputs, transform)


def _part(state: dict[str, Tensor], start: int, size: int) -> dict[str, Tensor]:
    return {name: value[start : start + size] for name, value in state.items()}


def _rows(outputs: Tensor, transform: Output) -> Tensor:
    values = transform(outputs.flatten(0, 1))
    return values.view(*outputs.shape[:2], *values.shape[1:])

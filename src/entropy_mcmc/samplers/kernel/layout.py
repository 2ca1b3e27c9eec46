"""What a sampler knows of its parameters until they change: order, buckets, flat memory.

A step of many small tensors costs more in calls than in arithmetic. So what does not change from
step to step is kept: the index of each parameter, its slot in the noise, the buckets, and for the
small tensors of a bucket one flat tensor. θ and the gradient pass through it; the variables beside
θ live in it. Each step compares identities and addresses, so that a change is always seen.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from itertools import repeat
from operator import is_
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.samplers.kernel.advance import advance, run_bucket
from entropy_mcmc.samplers.kernel.finite_gradients import sums_are_finite
from entropy_mcmc.samplers.kernel.parameters import check_gradient
from entropy_mcmc.samplers.kernel.tensor_buckets import Bucket, is_sharded, plan, slot
from entropy_mcmc.samplers.rule import Update


def same(these: Sequence[object], those: Sequence[object]) -> bool:
    """Whether two lists hold the same objects."""
    return len(these) == len(those) and all(map(is_, these, those))


class SideBySide:
    """Small tensors as one flat tensor; `views` are its parts, shaped as they are.

    Tensors of `rows` stacked chains lie chain after chain.
    """

    def __init__(self, tensors: Sequence[Tensor], rows: int = 1) -> None:
        sizes = [tensor.numel() // rows for tensor in tensors]
        self.flat = torch.empty(rows * sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
        parts = torch.split(self.flat.view(rows, -1), sizes, dim=1)
        self.views = [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]

    def take(self, tensors: list[Tensor]) -> Tensor:
        """The flat tensor with the values of `tensors`."""
        torch._foreach_copy_(self.views, tensors)
        return self.flat


class Home(SideBySide):
    """Small tensors that were moved into one flat tensor: whoever holds them sees it change."""

    def __init__(self, tensors: list[Tensor], rows: int = 1) -> None:
        super().__init__(tensors, rows)
        self.take(tensors)
        for tensor, view in zip(tensors, self.views, strict=True):
            tensor.data = view
        self.tensors = list(tensors)
        self.addresses = [view.data_ptr() for view in self.views]

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are the tensors that were moved here, and still lie here."""
        return same(tensors, self.tensors) and self.addresses == [t.data_ptr() for t in tensors]


class Layout:
    """The parameters of a group that have a gradient, and the flat memory of their buckets."""

    def __init__(
        self,
        params: Sequence[Tensor],
        index: dict[Tensor, int],
        rows: int = 1,
        left: int | None = None,
    ) -> None:
        """`left` is the number of the noise of which half is left; None where none rested."""
        self.params, self._rows, self.left = list(params), rows, left
        self.indices = [index[p] for p in params]
        self.slots = tuple(slot(index[p], p) for p in params)
        self.low = [p for p in params if p.dtype == torch.bfloat16]
        self._addresses = None if any(map(is_sharded, params)) else self._read_addresses()
        kinds = {(p.dtype, p.device.type) for p in params}
        # What is sharded is gathered anew each time, and so is what differs in kind.
        self.flat = self._addresses is not None and len(kinds) == 1
        self.buckets = plan(self.slots)
        self._flat_params = self._flat_views()
        self._thetas: dict[int, SideBySide] = {}
        self._grads: dict[int, SideBySide] = {}
        self._homes: dict[tuple[int, int], Home] = {}
        self.gradients: list[Tensor] = []
        self._kept_states: tuple[list[object], list[dict[str, Tensor]]] | None = None

    def _flat_views(self) -> dict[int, list[Tensor]]:
        """Flat views of the parameters of each bucket, by number; one call joins small ones."""
        if not self.flat or self._rows > 1 or self.low:
            return {}
        found = {
            i: [self.params[k].detach() for k in b.members] for i, b in enumerate(self.buckets)
        }
        return {
            number: [tensor.view(-1) for tensor in tensors]
            for number, tensors in found.items()
            if all(tensor.is_contiguous() for tensor in tensors)
        }

    def fits(self, params: Sequence[Tensor]) -> bool:
        """Whether these are still the parameters, with the same memory."""
        if self._addresses is None or not same(params, self.params):
            return False
        return self._addresses == self._read_addresses()

    def _read_addresses(self) -> list[int]:
        return [p.data_ptr() for p in self.params]

    def states(self, state: MutableMapping[Tensor, Any]) -> list[dict[str, Tensor]]:
        """What an optimizer keeps beside each parameter; looked up again whenever that changed."""
        kept = self._kept_states
        if kept is not None and same([*state, *state.values()], kept[0]):
            return kept[1]
        found = [state[p] for p in self.params]
        # Comparing identities is cheaper than looking up, unless others have states here, too.
        alone = len(state) == len(found)
        self._kept_states = ([*state, *state.values()], found) if alone else None
        return found

    def take_gradients(self, grads: list[Tensor]) -> None:
        """Gather the gradients of this step, in at least float32: the small ones side by side."""
        if not self.flat:
            for grad in grads:
                check_gradient(grad)
            self.gradients = [_at_least_float32(grad) for grad in grads]
            return
        try:
            self.gradients = [self._gradient(i, grads) for i in range(len(self.buckets))]
        except RuntimeError:  # a sparse gradient cannot be copied to where it belongs
            for grad in grads:
                check_gradient(grad)
            raise

    def _gradient(self, number: int, grads: list[Tensor]) -> Tensor:
        members = self.buckets[number].members
        if len(members) > 1:  # the copy also turns bfloat16 into float32
            return self._side_by_side(self._grads, number, grads)
        check_gradient(grads[members[0]])
        return _at_least_float32(grads[members[0]]).reshape(-1)

    def gradients_are_finite(self) -> bool:
        """Whether all are, where that is cheap to know: in flat memory of the CPU."""
        on_cpu = self.flat and self.params[0].device.type == "cpu"
        return on_cpu and sums_are_finite(self.gradients)

    def forget_gradients(self) -> None:
        """Keep no gradient beyond its step."""
        self.gradients = []

    def advance(
        self,
        update: Update,
        moved: Sequence[Sequence[Tensor]],
        schedule: noise.Schedule | None,
        *,
        fused: bool,
    ) -> None:
        """Move `moved[variable][parameter]` in place by the rule and the gradients taken."""
        if not self.flat:
            advance(update, moved, [self.gradients], schedule, self.slots, fused=fused)
            return

        def move(bucket: Bucket, values: Sequence[Tensor]) -> None:
            run_bucket(update, values, schedule, bucket, fused=fused)

        self.each_bucket(moved, move)

    def each_bucket(
        self, moved: Sequence[Sequence[Tensor]], move: Callable[[Bucket, Sequence[Tensor]], None]
    ) -> None:
        """Call `move` with the flat variables and gradient of each bucket, which it changes."""
        # A parameter may have been turned, in the same memory.
        plain = moved[0] is self.params and all([p.is_contiguous() for p in self.params])
        for number, bucket in enumerate(self.buckets):
            theta = self._theta(number, moved[0], plain)
            others = [self._home(number, i, column) for i, column in enumerate(moved[1:])]
            move(bucket, [theta, *others, self.gradients[number]])
            self._write_back(number, moved, theta, others)

    def _theta(self, number: int, column: Sequence[Tensor], plain: bool) -> Tensor:
        """θ of a bucket as one flat tensor; `plain` parameters are read through kept views."""
        views = self._flat_params.get(number)
        if views is None or not plain:
            return self._side_by_side(self._thetas, number, column)
        if len(views) == 1:
            return views[0]
        if number not in self._thetas:
            self._thetas[number] = SideBySide(_members(self.params, self.buckets[number]))
        flat: Tensor = torch.cat(views, out=self._thetas[number].flat)
        return flat

    def _side_by_side(
        self, kept: dict[int, SideBySide], number: int, column: Sequence[Tensor]
    ) -> Tensor:
        members = self.buckets[number].members
        if len(members) == 1:
            return column[members[0]].detach().reshape(-1)
        tensors = _members(column, self.buckets[number])
        if number not in kept:
            kept[number] = SideBySide([_at_least_float32(t) for t in tensors], self._rows)
        return kept[number].take(tensors)

    def _home(self, number: int, variable: int, column: Sequence[Tensor]) -> Tensor:
        members = self.buckets[number].members
        if len(members) == 1:
            return column[members[0]].reshape(-1)
        tensors = _members(column, self.buckets[number])
        home = self._homes.get((number, variable))
        if home is None or not home.holds(tensors):
            home = self._homes[number, variable] = Home(tensors, self._rows)
        return home.flat

    def _write_back(
        self, number: int, moved: Sequence[Sequence[Tensor]], theta: Tensor, others: list[Tensor]
    ) -> None:
        members = self.buckets[number].members
        if len(members) > 1:
            torch._foreach_copy_(
                _members(moved[0], self.buckets[number]), self._thetas[number].views
            )
            return
        for column, value in zip(moved, (theta, *others), strict=True):
            target = column[members[0]]
            if target.data_ptr() != value.data_ptr():  # `reshape` gave a copy, no view
                target.copy_(value.view(target.shape))


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _members(column: Sequence[Tensor], bucket: Bucket) -> list[Tensor]:
    return (
        list(column) if len(column) == len(bucket.members) else [column[i] for i in bucket.members]
    )


class Known:
    """All parameters of a sampler in its order, and the layouts of its groups."""

    def __init__(self, groups: Sequence[dict[str, Any]], rows: int = 1) -> None:
        """`rows` chains are stacked in each parameter."""
        self.params, self._rows = _all_params(groups), rows
        self.index = {p: i for i, p in enumerate(self.params)}
        self.size = sum(p.numel() for p in self.params)
        self._layouts: dict[int, Layout] = {}

    def fits(self, groups: Sequence[dict[str, Any]]) -> bool:
        """Whether these groups have these parameters."""
        return same(_all_params(groups), self.params)

    def take_gradients(
        self, groups: Sequence[dict[str, Any]]
    ) -> list[tuple[dict[str, Any], Layout]]:
        """Groups of which a parameter has a gradient, with the layouts that took them."""
        laid_out = []
        for number, group in enumerate(groups):
            params, grads = group["params"], [p.grad for p in group["params"]]
            if any(map(is_, grads, repeat(None))):
                params = [p for p, grad in zip(params, grads, strict=True) if grad is not None]
                grads = [grad for grad in grads if grad is not None]
            if params:
                layout = self.layout(number, params)
                layout.take_gradients(grads)
                laid_out.append((group, layout))
        return laid_out

    def apart(self, params: Sequence[Tensor], left: int | None) -> Layout:
        """A layout, for one step, of parameters whose last moves had the same number."""
        layout = Layout(params, self.index, self._rows, left)
        layout.take_gradients([p.grad for p in params if p.grad is not None])
        return layout

    def layout(self, number: int, params: Sequence[Tensor]) -> Layout:
        """Layout of a group, by its number, whose parameters `params` have a gradient."""
        layout = self._layouts.get(number)
        if layout is None or not layout.fits(params):
            layout = self._layouts[number] = Layout(params, self.index, self._rows)
        return layout


def _all_params(groups: Sequence[dict[str, Any]]) -> list[Tensor]:
    if len(groups) == 1:
        params: list[Tensor] = groups[0]["params"]
        return list(params)
    return [p for group in groups for p in group["params"]]

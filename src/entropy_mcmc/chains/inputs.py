"""What the caller of `run` gives, checked: starting states, data and the sampler's settings."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entropy_mcmc.chains.row_layout import Layout
from entropy_mcmc.errors import ConfigError, check_count
from entropy_mcmc.samplers import Sampler
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters

PRECISIONS = (torch.float32, torch.float64)  # what θ may be kept in: less would drop the noise


def starting_states(energy: Any, init: Any, chains: int | None) -> tuple[Layout, Tensor]:
    """Layout of one chain's parameters, and the states of all chains as rows of one matrix."""
    if init is None:
        if not isinstance(energy, nn.Module):
            raise ConfigError("init must be a tensor or a dict of tensors, got init=None")
        init = dict(energy.named_parameters())
        chains = 1 if chains is None else chains
    names = tuple(init) if isinstance(init, Mapping) else ()
    labels = [f"init[{name!r}]" for name in names] or ["init"]
    given = list(init.values()) if isinstance(init, Mapping) else [init]
    if not given:
        raise ConfigError("init must hold at least one tensor, got an empty dict")
    dtype = _numbers_dtype(given)
    values = [_as_state(label, value, dtype) for label, value in zip(labels, given, strict=True)]
    _check_alike(labels, [value.dtype for value in values], "dtype")
    if chains is not None:
        count = check_count("chains", chains)
        values = [value.expand(count, *value.shape) for value in values]
    _check_leading(labels, values)
    for label, value in zip(labels, values, strict=True):
        if value.numel() == 0:
            raise ConfigError(
                f"{label} must hold at least one number, got shape {tuple(value.shape[1:])}; "
                f"leave it out"
            )
    layout = Layout(names, tuple(value.shape[1:] for value in values))
    return layout, torch.cat([value.reshape(len(value), -1) for value in values], dim=1)


def _numbers_dtype(given: Sequence[Any]) -> torch.dtype:
    """Dtype of numbers and lists: float64 beside a tensor or an array of float64, else float32."""
    doubles = (torch.float64, np.float64)
    has_double = any(isinstance(v, Tensor | np.ndarray) and v.dtype in doubles for v in given)
    return torch.float64 if has_double else torch.float32


def _as_state(label: str, value: Any, dtype: torch.dtype) -> Tensor:
    """A detached tensor of float32 or float64; numbers, and lists of them, get `dtype`."""
    tensor = _as_tensor(label, value).detach()
    plain = isinstance(value, int | float | list | tuple) and not isinstance(value, bool)
    if plain and not tensor.is_complex() and tensor.dtype != torch.bool:
        tensor = tensor.to(dtype)
    if tensor.dtype not in PRECISIONS:
        raise ConfigError(
            f"{label} must be of float32 or float64, got {tensor.dtype}; convert it, for example "
            f"with .float()"
        )
    return tensor


def _as_tensor(label: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value, order="C"))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{label} must be a tensor, an array or a number, got {type(value).__name__}: {error}"
        ) from error


def of_dtype(data: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Data whose floating-point parts have this dtype; integers stay, as labels and indices."""
    return tuple(part.to(dtype) if part.is_floating_point() else part for part in data)


def _check_alike(labels: Sequence[str], kinds: Sequence[Any], what: str) -> None:
    for label, kind in zip(labels, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigError(
                f"{label} must have the {what} of {labels[0]}, {kinds[0]}, got {kind}; convert one"
            )


def _check_leading(labels: Sequence[str], values: Sequence[Tensor]) -> None:
    """Refuse states without a leading dimension of chains, or with different ones."""
    for label, value in zip(labels, values, strict=True):
        if value.dim() == 0 or len(value) == 0 or len(value) != len(values[0]):
            wanted = f"{len(values[0])} chains, as in {labels[0]}," if value.dim() else "chains,"
            raise ConfigError(
                f"{label} must have a leading dimension of {wanted} got shape "
                f"{tuple(value.shape)}; to start all chains from one state, pass chains=, their "
                f"number"
            )


def check_data(data: Any) -> tuple[Tensor, ...]:
    """Data as tensors of one length, from a sequence of tensors or arrays."""
    if isinstance(data, Tensor | np.ndarray) or not isinstance(data, Sequence):
        raise ConfigError(
            f"data must be a tuple of tensors, got {type(data).__name__}; pass data=(x, y), or "
            f"data=(x,) for one tensor"
        )
    parts = tuple(_as_tensor(f"data[{i}]", part) for i, part in enumerate(data))
    for i, part in enumerate(parts):
        if part.is_complex():
            raise ConfigError(
                f"data[{i}] must be real, got {part.dtype}; pass real and imaginary part apart"
            )
        if part.dim() == 0 or len(part) == 0 or len(part) != len(parts[0]):
            raise ConfigError(
                f"data must have equal first dimensions of at least 1 row, got shapes "
                f"{[tuple(p.shape) for p in parts]}"
            )
    return parts


def rows_per_step(data: Sequence[Tensor], batch_size: int | None) -> int:
    """Rows drawn for each chain and step; 0 stands for all data."""
    if batch_size is None:
        return 0
    if not data:
        raise ConfigError(f"batch_size needs data to draw from, got batch_size={batch_size!r}")
    return check_count("batch_size", batch_size)


def check_shared(shared_batch: bool, batch_rows: int, replicas: int) -> None:
    """Refuse a batch that there is not, or that replicas, with mini-batches of their own, share."""
    if shared_batch and not batch_rows:
        raise ConfigError(
            "shared_batch=True needs mini-batches, got batch_size=None, with which all chains see "
            "all data; pass batch_size="
        )
    if shared_batch and replicas > 1:
        raise ConfigError(
            f"shared_batch must be False with replicas, which have mini-batches of their own, got "
            f"shared_batch=True and replicas={replicas}"
        )


def check_settings(
    kind: type[Sampler], settings: Mapping[str, Any], data: Sequence[Tensor]
) -> dict[str, Any]:
    """Hyper-parameters of a sampler by their names, with N from the data where there are some."""
    declared = {k: v for k, v in hyper_parameters(kind).items() if k != "lr"}
    for name in settings:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(declared)}"
            raise ConfigError(
                f"{name!r} is no setting of {kind.__name__} in chains, got "
                f"{name}={settings[name]!r}; {hint}"
            )
    for name, parameter in declared.items():
        if parameter.default is inspect.Parameter.empty and name not in settings:
            raise ConfigError(f"{name} is missing: pass {name}=, {parameter.help}")
    if not data or "num_data" not in declared:
        return dict(settings)
    rows = len(data[0])
    if settings.get("num_data", rows) != rows:
        raise ConfigError(
            f"num_data must be the number of rows of the data, {rows}, got "
            f"num_data={settings['num_data']!r}; leave it out"
        )
    return {**settings, "num_data": rows}

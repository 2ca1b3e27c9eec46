"""Checks of what `log_density` and `log_prior` return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.func import vmap

from entropy_mcmc.chains.log_density import LogDensity
from entropy_mcmc.errors import ConfigError, EntropyMCMCError, NonFiniteError

LOOK_FOR = (
    "look for log(0) and 0/0, or give the parameter a transform that keeps it inside its range"
)


@contextmanager
def validation(on: bool) -> Iterator[None]:
    """torch.distributions with its checks of values, or without.

    On where data are looked at, whatever was set: `torch.compile` switches them off for the whole
    process. Off under vmap, where they raise an error of vmap: the warm-up looks at states so far
    away that a scale is 0 or infinite there; what is not finite where it matters is found by the
    chains themselves.
    """
    before = Distribution._validate_args
    Distribution.set_default_validate_args(on)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def check_functions(density: LogDensity, row: Tensor) -> None:
    """Call `log_density` and `log_prior` once, and refuse what is no tensor of floats.

    What they raise by themselves gets a note that says what they were called with.
    """

    def one(row: Tensor) -> Tensor:
        theta = density.constrained(row)
        if density.prior is not None:
            _check_value("log_prior", density.prior(theta))
        _check_value("log_density", density.function(theta, *density.data))
        return row

    try:
        vmap(one)(row[None])
    except EntropyMCMCError:
        raise
    except Exception as error:
        error.add_note(_called_with(density, row))
        raise


def _check_value(label: str, value: object) -> None:
    if value is None:
        raise ConfigError(f"{label} must return a tensor, got None; is its return missing?")
    if not isinstance(value, Tensor) or not value.is_floating_point():
        shown = value.dtype if isinstance(value, Tensor) else f"{value!r:.40}"
        raise ConfigError(
            f"{label} must return a tensor of floats, computed from theta by functions of torch, "
            f"got {shown}"
        )


def _called_with(density: LogDensity, row: Tensor) -> str:
    theta = {name: (*value.shape,) for name, value in density.constrained(row).items()}
    data = [f"{(*part.shape,)} of {part.dtype}" for part in density.data]
    rows = f" and rows {', '.join(data)}" if data else ""
    return (
        f"chains.sample called log_density with theta {theta} of {row.dtype}{rows}, under "
        f"torch.func.vmap. Tensors that it closes over must have that dtype; instead of float(), "
        f".item() and branches on values of theta use functions of torch, such as torch.where"
    )


def check_finite(density: LogDensity, states: Tensor, where: str) -> Tensor:
    """Log densities of states; a value that is not finite raises."""
    values = density.at(states)
    bad = (~values.isfinite()).nonzero().flatten()
    if len(bad):
        theta = {k: v.tolist() for k, v in density.constrained(states[bad[0]]).items()}
        remedy = bad_rows(density) or at_a_bound(density, states[bad[0]])
        raise NonFiniteError(
            f"the log density is {values[bad[0]].item()} {where}, for {len(bad)} of "
            f"{len(values)} states, first for {str(theta)[:200]}; {remedy or LOOK_FOR}"
        )
    return values


def bad_rows(density: LogDensity) -> str:
    """Which rows of the data are not finite, and what to do; "" if all are."""
    for i, part in enumerate(density.data):
        rows = (~part.isfinite()).flatten(1).any(dim=1) if part.dim() > 1 else ~part.isfinite()
        if bool(rows.any()):
            row = int(rows.nonzero()[0])
            return (
                f"row {row} of data[{i}] has a number that is NaN or infinite, and so have "
                f"{int(rows.sum())} of {len(part)} rows: leave them out, or fill their gaps"
            )
    return ""


def at_a_bound(density: LogDensity, states: Tensor) -> str:
    """Which parameter is rounded to its bound in unconstrained states; "" if none is."""
    for name, theta in density.constrained(states).items():
        transform = density.transform(name)
        for bound in transform.bounds:
            # Of what is less than the smallest normal number, 1/x may already be infinite.
            if bool(((theta - bound).abs() < torch.finfo(theta.dtype).tiny).any()):
                kind = str(theta.dtype).removeprefix("torch.")
                start = "start in float64, or " if kind == "float32" else ""
                scale = "logit" if transform.bounded else "log"
                return (
                    f"{name} reached its bound {bound:g} in {kind}: numbers too near to it are "
                    f"rounded to it, and there the density is 0 or infinite; {start}make the "
                    f"{scale} of {name} the parameter, with the Jacobian in log_density"
                )
    return ""

"""Files of a posterior for other programs: `torch.export` archives (.pt2) and ONNX (.onnx)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.posterior.atomic_files import atomic

SUFFIXES = (".pt2", ".onnx")
TOLERANCE = 1e-5  # of probabilities; relative to the largest value in regression
PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def export_module(
    module: nn.Module, path: Path, example: Any, expected: Tensor, *, dynamic: bool = True
) -> None:
    """Write a module to a file that gives `expected` for the example, or raise.

    Args:
        module: The module, as `Posterior.as_module` makes it.
        path: Ends in .pt2 (`torch.export`) or .onnx.
        example: Inputs of a few rows.
        expected: What the posterior predicts for them.
        dynamic: Whether the number of rows may be another one later.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"path must end in {' or '.join(SUFFIXES)}, got {str(path)!r}")
    if path.suffix == ".onnx":
        require_onnx()
    if dynamic:
        # With one row the exporter would fix the number of rows.
        example, expected = tree_map(_at_least_two_rows, example), _at_least_two_rows(expected)
    program = _exported(module, example, dynamic)
    with _quiet(), atomic(path) as temporary:
        if path.suffix == ".pt2":
            with temporary.open("wb") as file:
                torch.export.save(program, file)
            made = program.module()(example)
        else:
            _save_onnx(program, temporary)
            made = _run_onnx(temporary, example)
        _compare(expected, made)


def require_onnx() -> None:
    """Raise unless the packages of the extra `onnx` are there."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"an .onnx file needs {', '.join(PACKAGES)}, and {', '.join(missing)} cannot be found; "
            "run `pip install 'entropy-mcmc[onnx]'`, or write a .pt2 file"
        )


def _at_least_two_rows(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor]) if len(tensor) == 1 else tensor


def _exported(module: nn.Module, inputs: Any, dynamic: bool) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows")
    shapes = tree_map(lambda _: {0: rows}, (inputs,)) if dynamic else None
    try:
        with torch.no_grad():
            return torch.export.export(module, (inputs,), dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever the network does that cannot be traced
        fixed = "; with dynamic=False the number of rows is that of the example" if dynamic else ""
        raise StateError(
            f"torch.export cannot take this network ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}){fixed}"
        ) from error


def _save_onnx(program: torch.export.ExportedProgram, path: Path) -> None:
    made: Any = torch.onnx.export(program, dynamo=True, verbose=False)
    made.save(path)


def _run_onnx(path: Path, inputs: Any) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    values = [tensor.cpu().numpy() for tensor in tree_leaves(inputs)]
    names = [entry.name for entry in session.get_inputs()]
    (result,) = session.run(None, dict(zip(names, values, strict=True)))
    return torch.as_tensor(result)


def _compare(expected: Tensor, made: Tensor) -> None:
    """Raise unless the file gives what the posterior gives."""
    away = float((made.cpu() - expected.cpu()).abs().max())
    scale = max(1.0, float(expected.abs().max()))
    if not away <= TOLERANCE * scale:
        raise StateError(
            f"the file must give the posterior's predictions within {TOLERANCE * scale:.2g}, got a "
            f"difference of {away:.3g}; it was not written"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of packages and names that nobody uses here."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

"""`emcmc predict`: a file of inputs in, a file of predictions out, as a stream."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from entropy_mcmc import metrics
from entropy_mcmc.data import Dataset
from entropy_mcmc.data.own_files import read_table
from entropy_mcmc.data.tabular import read_npz
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError, check_count
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc.posterior.predictive import Mean
from entropy_mcmc.run.checkpoint import explained
from entropy_mcmc.run.devices import DOUBLE
from entropy_mcmc.run.losses import check_finite_rows
from entropy_mcmc.run.runner import Run

Array = npt.NDArray[Any]
SUFFIXES = (".npz", ".csv")
TABLES = (".csv", ".parquet")


def predict_file(run: Run, source: Path, target: Path, batch_size: int = 256) -> int:
    """Predict every row of `source` into `target`; returns how many."""
    check_count("batch_size", batch_size)
    encoder = _table_encoder(run.problem.train)
    readable = (*SUFFIXES, ".parquet") if encoder is not None else SUFFIXES
    for path, allowed in ((source, readable), (target, SUFFIXES)):
        if path.suffix not in allowed:
            raise ConfigError(f"files must end in {' or '.join(allowed)}, got {str(path)!r}")
    named = encoder is not None and source.suffix in TABLES
    values = encoder.inputs(read_table(source), source.name) if named else read_inputs(source)
    inputs = prepare(run, values)
    names = getattr(run.problem.train, "class_names", ())
    write_predictions(target, predictions(run, inputs, batch_size), names)
    return len(inputs)


def _table_encoder(train: Any) -> Any:
    """How a table of named columns was encoded in training; None for other data."""
    table = isinstance(train, Dataset) and train.inputs.dim() == 2
    return train.encoder if table else None


def read_inputs(path: Path) -> Array:
    """The array `x` (or the only one) of a .npz, or the numbers of a .csv."""
    if not path.is_file():
        raise MissingFileError(f"{path} is not there; check the path of the inputs")
    try:
        values = _read_npz(path) if path.suffix == ".npz" else _read_csv(path)
    except DamagedFileError:
        raise
    except (ValueError, OSError, EOFError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error})") from error
    if values.dtype.kind not in "iuf" or values.ndim < 2 or not len(values):
        raise ConfigError(
            f"{path} must hold rows of numbers, got {values.dtype} of shape {values.shape}"
        )
    return values


def _read_npz(path: Path) -> Array:
    content = read_npz(path)
    name = "x" if "x" in content else next(iter(content)) if len(content) == 1 else None
    if name is None:
        raise ValueError(f"it must hold an array named x, it holds {', '.join(content)}")
    return content[name]


def _read_csv(path: Path) -> Array:
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    header = 0 if _is_numbers(first) else 1
    values: Array = np.loadtxt(path, delimiter=",", skiprows=header, ndmin=2)
    return values


def _is_numbers(line: str) -> bool:
    try:
        return all(isinstance(float(cell), float) for cell in line.split(","))
    except ValueError:
        return False


def prepare(run: Run, values: Array) -> Tensor:
    """Raw inputs as the network saw them in training: same shape, type and normalisation."""
    train = run.problem.train
    inputs = torch.as_tensor(values)
    check_finite_rows("inputs", inputs)
    if isinstance(train, Dataset):
        shape = train.inputs.shape[1:]
        if inputs[0].numel() != shape.numel():
            raise ConfigError(
                f"each input must have {shape.numel()} numbers (shape {tuple(shape)}), as in "
                f"training, got {inputs[0].numel()} (shape {tuple(inputs.shape[1:])})"
            )
        inputs = train.normalise(_as_stored(inputs.reshape(-1, *shape), train.inputs.dtype))
    double = run.record.config.compute.precision == DOUBLE
    return inputs.double() if double else inputs.float()


def _as_stored(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.uint8:
        return inputs.to(dtype)
    low, high = float(inputs.min()), float(inputs.max())
    whole = not inputs.is_floating_point() or bool((inputs == inputs.round()).all())
    if low < 0 or high > 255 or not whole:
        raise ConfigError(
            f"pixels must be whole numbers in 0 … 255, got values from {low:g} to {high:g}"
        )
    return inputs.to(torch.uint8)


def predictions(run: Run, inputs: Tensor, batch_size: int) -> dict[str, Array]:
    """Columns by name: class, probabilities, entropy and mutual information; or mean and std.

    Each sample is read once, and its predictions are added up batch by batch.
    """
    if run.problem.likelihood == "classification":
        return _classified(run, inputs, batch_size)
    made = run.posterior.predict_distribution(inputs, batch_size=batch_size)
    return {
        "mean": made.mean.cpu().numpy(),
        "std": made.variance.sqrt().cpu().numpy(),
        "epistemic_std": made.epistemic.sqrt().cpu().numpy(),
    }


def _classified(run: Run, inputs: Tensor, batch_size: int) -> dict[str, Array]:
    mean, entropy = Mean(inputs.device), Mean(inputs.device)
    for piece in run.posterior.stream_predictions(inputs, batch_size=batch_size):
        mean.add(piece.index, piece.values)
        entropy.add(piece.index, torch.special.entr(piece.values.double()).sum(-1))
    probs = mean.result().cpu().numpy()
    total = metrics.predictive_entropy(probs)
    # As `metrics.mutual_information`, which wants every sample's predictions at once.
    shared = np.maximum(total - entropy.result().cpu().numpy(), 0.0)
    return {
        "class": probs.argmax(1),
        "probabilities": probs,
        "entropy": total,
        "mutual_information": shared,
    }


def write_predictions(
    path: Path, columns: dict[str, Array], class_names: Sequence[str] = ()
) -> None:
    """Write atomically: arrays by name into .npz, or one row per input into .csv.

    Classes that have names are written by name into a .csv; a .npz has them as `class_names`.
    """
    with explained(path.parent), atomic(path) as temporary:
        if path.suffix == ".npz":
            named = {"class_names": np.array(class_names)} if class_names else {}
            with temporary.open("wb") as file:
                np.savez(file, **columns, **named)  # type: ignore[arg-type]
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_heading(columns, class_names))
            flat = [column.reshape(len(column), -1).tolist() for column in columns.values()]
            for row in zip(*flat, strict=True):
                cells = dict(zip(columns, row, strict=True))
                if class_names:
                    cells["class"] = [class_names[int(cells["class"][0])]]
                writer.writerow([_cell(value) for part in cells.values() for value in part])


def _heading(columns: dict[str, Array], class_names: Sequence[str]) -> list[str]:
    names = []
    for name, column in columns.items():
        width = column.reshape(len(column), -1).shape[1]
        wide = [f"p_{c}" for c in class_names] or [f"p{i}" for i in range(width)]
        names += [name] if column.ndim == 1 else wide
    return names


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"

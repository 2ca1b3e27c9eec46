"""`emcmc flatness`: the last θ and guide of one or several runs, measured side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from entropy_mcmc import flatness
from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.run.engine import Run
from entropy_mcmc.run.evaluate import load_run

Rows = tuple[Tensor, Tensor]
Settings = flatness.Settings


def flatness_command(
    folders: Sequence[str],
    *,
    subset: int = 500,
    output: str | None = None,
    device: str = "cpu",
    settings: Settings | None = None,
) -> flatness.Comparison:
    """Compare runs of one model on one training set; writes a table, JSON and figures.

    The Fisher diagonal uses all training rows as the network sees them without augmentation; the
    Hessian, the sharpness and the interpolation use a fixed random `subset`.
    """
    runs = [load_run(folder, device) for folder in folders]
    first = runs[0]
    _check_same_problem(runs)
    train, test = (_rows(first, part) for part in (first.problem.train, first.problem.test))
    if train is None:
        raise ConfigError(
            f"{first.folder}: flatness needs training data in memory, got a loader; "
            "use entropy_mcmc.flatness.compare in a program of your own"
        )
    states = {name: state for run in runs for name, state in _states(run, len(runs) > 1).items()}
    classify = first.problem.likelihood == "classification"
    comparison = flatness.compare(
        first.problem.model,
        first.problem.loss,
        train,
        states,
        hessian_data=flatness.subset(train, min(subset, len(train[0]))),
        test=test if classify else None,
        settings=settings,
    )
    _write(comparison, Path(output) if output else first.folder / "flatness")
    return comparison


def _states(run: Run, several: bool) -> dict[str, dict[str, Tensor]]:
    """The newest sample of each role, under a name for the table."""
    roles = run.posterior.roles
    if not roles:
        raise StateError(f"{run.folder} has no samples yet; let the run reach its first one")
    last = {role: index for index, role in enumerate(roles)}
    method = (
        f"{run.folder.name}:{run.record.config.method}" if several else run.record.config.method
    )
    return {f"{method} {role}": run.posterior[index] for role, index in last.items()}


def _check_same_problem(runs: Sequence[Run]) -> None:
    if len({str((r.record.config.model, r.record.config.data.name)) for r in runs}) > 1:
        listed = "; ".join(f"{r.folder}: {r.record.problem}" for r in runs)
        raise ConfigError(
            f"runs must share their model and data, got {listed}; compare the others apart"
        )


def _rows(run: Run, part: object) -> Rows | None:
    if not isinstance(part, Dataset):
        return None
    inputs = run.problem.train.normalise(part.inputs)
    dtype = next(run.problem.model.parameters()).dtype
    return inputs.to(dtype), part.targets


def _write(comparison: flatness.Comparison, folder: Path) -> None:
    paths = flatness.save_figures(comparison, folder)
    table = folder / "flatness.json"
    table.write_text(json.dumps(comparison.records(), indent=1), encoding="utf-8")
    print(comparison)
    print("written:", *(str(path) for path in (table, *paths)), sep="\n  ")

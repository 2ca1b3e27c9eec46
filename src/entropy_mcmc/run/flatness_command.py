"""`emcmc flatness`: the last θ and guide of one or several runs, measured side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from entropy_mcmc import flatness
from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError, StateError, check_count
from entropy_mcmc.posterior import refresh_batchnorm
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc.run.checkpoint import explained
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.runner import Run
from entropy_mcmc.run.trust import NOTHING, Trust

Rows = tuple[Tensor, Tensor]
State = Mapping[str, Tensor]
RESOLUTION = 15  # of the surface: 225 losses
REFRESH_ROWS = 125
Settings = flatness.Settings
LEARNING_STEPS = 800  # of each of two chains of the local learning coefficient
LEARNING_ROWS = 256  # per step: the heat of fewer is in proportion to 1/rows
LOCALISATION = 200.0  # weights stay within about 7 % of their tensor's root mean square


def flatness_command(
    folders: Sequence[str],
    *,
    subset: int = 500,
    output: str | None = None,
    device: str = "cpu",
    surface: bool = False,
    learning_steps: int = LEARNING_STEPS,
    learning_rows: int = LEARNING_ROWS,
    localisation: float = LOCALISATION,
    settings: Settings | None = None,
    trust: Trust = NOTHING,
) -> flatness.Comparison:
    """Compare runs of one model on one training set; writes a table, JSON and figures.

    Measured are the last θ, of replicas the last one, and the last guide of each run.
    The Fisher diagonal and the local learning coefficient use all training rows as the network sees
    them without augmentation; the Hessian, the sharpness, the lines and the surface use a fixed
    random `subset`. The learning coefficient measures the weights relative to the root mean square
    of their tensor, so that networks of different weight scale can be compared. Its localisation γ
    is a convention: the table says how the value moves with it. On the line
    from θ to its guide and on the surface, batch-norm statistics are taken anew at every point.

    Args:
        folders: Run folders.
        subset: Training rows for all but loss, Fisher diagonal and learning coefficient.
        output: Folder to write; else `flatness` in the first run folder.
        device: Where to compute.
        surface: Also draw the loss on the plane through three samples, which takes longer.
        learning_steps: Steps of each chain of the learning coefficient; 0 leaves it out.
        learning_rows: Rows of each of these steps; too few heat the chains, which it says.
        localisation: γ of the learning coefficient, for weights relative to their tensor's size; a
            convention, so that values compare at one γ only.
        settings: How much work is done; wins over the three above.
        trust: Functions of other modules that the runs may name.
    """
    runs = [load_run(folder, device, trust) for folder in folders]
    first = runs[0]
    _check_same_problem(runs)
    train, test = (_rows(first, part) for part in (first.problem.train, first.problem.test))
    if train is None:
        raise ConfigError(
            f"{first.folder}: flatness needs training data in memory, got a loader; "
            "use entropy_mcmc.flatness.compare in a program of your own"
        )
    states = {name: state for run in runs for name, state in _states(run, len(runs) > 1).items()}
    few = flatness.subset(train, min(subset, len(train[0])))
    test = test if first.problem.likelihood == "classification" else None
    network, loss = first.problem.model, first.problem.loss
    settings = settings or Settings(learning=_learning(learning_steps, learning_rows, localisation))
    comparison = flatness.compare(
        network, loss, train, states, hessian_data=few, test=test, settings=settings
    )
    scene = _Scene(network, loss, few, test, settings)
    extra = _pairs(scene, states) | (_surface(scene, runs) if surface else {})
    _write(comparison, Path(output) if output else first.folder / "flatness", extra)
    return comparison


def _learning(steps: int, rows: int, localisation: float) -> flatness.LocalSampling | None:
    if steps == 0:
        return None
    check_count("learning_steps", steps, least=2)  # by the names of the command
    check_count("learning_rows", rows)
    return flatness.LocalSampling(
        localisation=localisation, scale="rms", steps=steps, chains=2, batch_size=rows
    )


class _Scene(NamedTuple):
    """Where lines and surfaces are drawn."""

    model: nn.Module
    loss: Any
    few: Rows
    test: Rows | None
    settings: Settings

    def refresh(self, model: nn.Module) -> None:
        """Batch-norm statistics of the weights at this point, on the subset."""
        refresh_batchnorm(model, torch.split(self.few[0], REFRESH_ROWS))


def _pairs(scene: _Scene, states: Mapping[str, State]) -> dict[str, Any]:
    """The figure of the lines from each θ to its guide, if there is one."""
    lines = {}
    test = None if scene.test is None else _spaced(scene.test, scene.settings.test_rows)
    for name, state in states.items():
        who, theta, _ = name.rpartition(" theta")  # a replica has its number after it
        guide = states.get(f"{who} guide")
        if theta and guide is not None:
            lines[who] = flatness.interpolate_between(
                scene.model,
                scene.loss,
                scene.few,
                state,
                guide,
                fractions=flatness.BEYOND,
                test=test,
                refresh=scene.refresh,
            )
    return {"between": flatness.between_figure(lines)} if lines else {}


def _surface(scene: _Scene, runs: Sequence[Run]) -> dict[str, Any]:
    """The loss on the plane through the first, middle and last sample of one role of a run."""
    for run in runs:
        role = run.posterior.roles[0]
        own = [i for i, each in enumerate(run.posterior.roles) if each == role]
        if len(own) < 3:
            continue
        points = [own[0], own[len(own) // 2], own[-1]]
        others = [i for i in range(len(run.posterior)) if i not in points]
        surface = flatness.loss_surface(
            scene.model,
            scene.loss,
            scene.few,
            [run.posterior[i] for i in points],
            samples={_sample_name(run, i): run.posterior[i] for i in others},
            resolution=RESOLUTION,
            refresh=scene.refresh,
        )
        return {"surface": flatness.surface_figure(surface)}
    raise ConfigError(
        f"a surface needs 3 samples of one role in a run, got {[len(r.posterior) for r in runs]}; "
        "leave --surface out, or sample more"
    )


def _sample_name(run: Run, index: int) -> str:
    """Role, step and replica of a sample: its place in the store."""
    sample = run.posterior.samples[index]
    return f"{sample.role} {sample.step}{_of_replica(run, index)}"


def _of_replica(run: Run, index: int) -> str:
    """Which replica a sample is; nothing where θ is the only one."""
    replica = run.posterior.samples[index].replica
    return "" if replica is None else f" (replica {replica + 1} of {run.record.config.replicas})"


def _spaced(rows: Rows, count: int) -> Rows:
    index = torch.linspace(0, len(rows[0]) - 1, min(count, len(rows[0]))).long()
    return rows[0][index], rows[1][index]


def _states(run: Run, several: bool) -> dict[str, dict[str, Tensor]]:
    """The newest sample of each role, under a name for the table; of replicas it is the last."""
    roles = run.posterior.roles
    if not roles:
        raise StateError(f"{run.folder} has no samples yet; let the run reach its first one")
    last = {role: index for index, role in enumerate(roles)}
    method = (
        f"{run.folder.name}:{run.record.config.method}" if several else run.record.config.method
    )
    return {
        f"{method} {role}{_of_replica(run, index)}": run.posterior[index]
        for role, index in last.items()
    }


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


def _write(comparison: flatness.Comparison, folder: Path, extra: Mapping[str, Any]) -> None:
    table = folder / "flatness.json"
    with explained(folder):
        paths = flatness.save_figures(comparison, folder, extra)
        with atomic(table) as temporary:
            temporary.write_text(json.dumps(comparison.records(), indent=1), encoding="utf-8")
    print(comparison)
    print("written:", *(str(path) for path in (table, *paths)), sep="\n  ")

"""How good is a run: metrics on the test set, on other data, and on corrupted data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import data as data_sets
from entropy_mcmc import metrics
from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.config_file import NAME as CONFIG
from entropy_mcmc.run.devices import DOUBLE
from entropy_mcmc.run.engine import Run
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.load import load_run
from entropy_mcmc.run.trust import NOTHING, Trust

BASELINE = "baseline"
SHUFFLED = "shuffled"
Event = dict[str, Any]


def evaluate(
    run: Run,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = (),
    trust: Trust = NOTHING,
) -> list[Event]:
    """Measure a run and its baseline; keep the lines in `metrics.jsonl` unless the run goes on."""
    events = list(measure(run, run.record.config.method, corruptions, severities))
    if (run.folder / BASELINE / CONFIG).exists():
        baseline = load_run(run.folder / BASELINE, trust=trust)
        events += measure(baseline, baseline.record.config.method, corruptions, severities)
    if not Journal(run.folder).replace_evaluations(list(events)):
        print(
            f"{run.folder} is used by a run that goes on: these scores are of the samples so far, "
            "and are not kept",
            file=sys.stderr,
        )
    return events


def measure(
    run: Run, who: str, corruptions: Sequence[str], severities: Sequence[int]
) -> Iterator[Event]:
    """One event for each data set."""
    test = run.problem.test
    if test is None:
        raise ConfigError(
            f"{run.folder} has no test data; let data return (train, test) to evaluate"
        )
    inputs, targets = _test_arrays(run, test)
    for roles in _roles(run.posterior):
        name = who if roles == "both" else f"{who} {roles}"
        count = sum(roles in ("both", role) for role in run.posterior.roles)
        scores = _scores(run, inputs, targets, roles)
        yield {"set": "test", "who": name, "samples": count, **scores}
    if not isinstance(test, Dataset) or test.task != "classification" or test.inputs.dim() != 4:
        return
    yield from _out_of_distribution(run, who, test, inputs)
    yield from _corrupted(run, who, test, corruptions, severities)


def _roles(posterior: Posterior) -> list[str]:
    return ["both", "theta", "guide"] if "guide" in posterior.roles else ["both"]


def _test_arrays(run: Run, test: Any) -> tuple[Any, Tensor]:
    if isinstance(test, Dataset):
        return _prepared(run, test.inputs), test.targets
    targets = [torch.as_tensor(batch[1]) for batch in test]
    return test, torch.cat(targets)


def _prepared(run: Run, inputs: Tensor) -> Tensor:
    """Inputs as the network saw them: normalised by the training set's statistics."""
    train = run.problem.train
    ready = train.normalise(inputs) if isinstance(train, Dataset) else inputs
    return ready.double() if run.record.config.compute.precision == DOUBLE else ready


def _scores(run: Run, inputs: Any, targets: Tensor, roles: str = "both") -> dict[str, float]:
    if run.problem.likelihood == "classification":
        return metrics.summary(run.posterior.predict_proba(inputs, roles=roles), targets)
    found = run.posterior.predict_distribution(inputs, roles=roles)
    variance = found.aleatoric + found.epistemic
    return {
        "rmse": metrics.rmse(found.mean, targets),
        "nll": metrics.gaussian_nll(found.mean, variance, targets),
        "coverage": metrics.coverage(found.mean, variance.sqrt(), targets),
    }


def _out_of_distribution(run: Run, who: str, test: Dataset, inputs: Tensor) -> Iterator[Event]:
    config = run.record.config.data
    known = metrics.predictive_entropy(run.posterior.predict_proba(inputs))
    for name in [SHUFFLED] if config.ood is None else config.ood:
        other = (
            shuffled(test.inputs) if name == SHUFFLED else other_inputs(name, config.folder, test)
        )
        probs = run.posterior.predict_proba(_prepared(run, other))
        strange = metrics.predictive_entropy(probs)
        yield {
            "set": f"ood:{name}",
            "who": who,
            "auroc": metrics.auroc(known, strange),
            "aupr": metrics.aupr(known, strange),
            "fpr95": metrics.fpr95(known, strange),
        }


def shuffled(images: Tensor) -> Tensor:
    """Images whose pixels are all rearranged by one fixed permutation.

    Every image keeps its own grey values, so nothing but the arrangement is strange.
    """
    side = images.shape[-2] * images.shape[-1]
    places = data_sets.order(0, 0, side).to(images.device)
    return images.flatten(2)[..., places].view_as(images)


def other_inputs(name: str, folder: str | None, test: Dataset) -> Tensor:
    """Out-of-distribution inputs of the shape of the test set's."""
    other = data_sets.load(name, folder=folder, split="test").inputs
    if other.shape[1:] != test.inputs.shape[1:]:
        raise ConfigError(
            f"data.ood={name!r} must have images of shape {tuple(test.inputs.shape[1:])}, got "
            f"{tuple(other.shape[1:])}"
        )
    return other


def _corrupted(
    run: Run, who: str, test: Dataset, names: Sequence[str], severities: Sequence[int]
) -> Iterator[Event]:
    for severity in severities:
        found: list[dict[str, float]] = []
        for name in names:
            changed = data_sets.corrupt(test.inputs, name, severity)
            found.append(_scores(run, _prepared(run, changed), test.targets))
            yield {"set": f"corrupted:{name}:{severity}", "who": who, **found[-1]}
        if found:
            shared = set.intersection(*map(set, found))
            means = {k: sum(f[k] for f in found) / len(found) for k in found[0] if k in shared}
            yield {"set": f"corrupted:mean:{severity}", "who": who, **means}


COLUMNS = ("accuracy", "nll", "ece", "rmse", "coverage", "auroc", "fpr95")


def table(events: Sequence[Event]) -> str:
    """The numbers as aligned text; single corruption types stay in `metrics.jsonl`."""
    shown = [e for e in events if not _is_detail(e["set"])]
    columns = [name for name in COLUMNS if any(name in event for event in shown)]
    head = ["set", "method", *columns]
    body = [[e["set"], e["who"], *(_cell(e.get(name)) for name in columns)] for e in shown]
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    return "\n".join(_row(row, widths) for row in [head, *body])


def _is_detail(name: str) -> bool:
    return name.startswith("corrupted:") and not name.startswith("corrupted:mean:")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _row(cells: list[str], widths: list[int]) -> str:
    first = [cell.ljust(width) for cell, width in zip(cells[:2], widths, strict=False)]
    rest = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join([*first, *rest]).rstrip()

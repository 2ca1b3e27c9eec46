"""How good is a run: scores on the test set, on OOD sets, and on corrupted data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from torch import Tensor

from entropy_mcmc import data as data_sets
from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.evaluation import (
    KeptSamples,
    Predictions,
    average_over_samples,
    detection_scores,
    evaluation_sets,
    prediction_scores,
)
from entropy_mcmc.evaluation.predictions import BOTH
from entropy_mcmc.evaluation.sets import OOD, ROWS, TEST, compared_rows, has_ood, row_limit
from entropy_mcmc.run.devices import DOUBLE
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.progress import make_progress
from entropy_mcmc.run.runner import Run
from entropy_mcmc.text_table import aligned

Event = dict[str, Any]


def predictions_of(run: Run, rows: int = ROWS) -> Predictions:
    """Predictions on the run's test set and OOD sets, to be made; see `Run.predictions`.

    Args:
        run: The run.
        rows: Test rows for which every sample's prediction is kept, at most.
    """
    config, problem = run.record.config.data, run.problem
    sets = evaluation_sets(
        problem.train,
        problem.test,
        prepare=lambda inputs: prepared(run, inputs),
        limit=kept_rows(run, rows),
        ood=config.ood,
        folder=config.folder,
    )
    return Predictions(run.posterior, sets)


def kept_rows(run: Run, rows: int) -> int:
    """Test rows for which every sample's prediction is kept: fewer where they are large."""
    classes = getattr(run.problem.train, "classes", None)
    return row_limit(rows, len(run.posterior), classes if isinstance(classes, int) else None)


def prepared(run: Run, inputs: Tensor) -> Tensor:
    """Inputs as the network saw them: normalised by the training set's statistics."""
    train, test = run.problem.train, run.problem.test
    # What a stream gives is what the network sees.
    both = isinstance(train, Dataset) and isinstance(test, Dataset)
    ready = train.normalise(inputs) if both else inputs
    double = run.record.config.compute.precision == DOUBLE and ready.is_floating_point()
    return ready.double() if double else ready


def compared_samples(run: Run) -> tuple[KeptSamples, Tensor] | None:
    """Samples and row numbers on which a diagnosis compares them, whose predictions are kept.

    So nothing is predicted twice. None where there is no test set in memory.
    """
    train, test = run.problem.train, run.problem.test
    if not isinstance(train, Dataset) or not isinstance(test, Dataset):
        return None
    return KeptSamples(run.posterior, run.predictions.some(TEST)), compared_rows(len(test))


def evaluate(
    run: Run,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = (),
    *,
    progress: bool = False,
) -> list[Event]:
    """Measure a run and its baseline; keep the lines in `metrics.jsonl` unless the run goes on.

    With `progress`, tell of the corrupted sets as they are measured: that takes long.
    """
    total = len(corruptions) * len(severities) if has_ood(run.problem.test) else 0
    events: list[Event] = []
    for part in (run, run.baseline):
        if part is not None:
            who = part.record.config.method
            measured = measure(part, who, corruptions, severities)
            events += _told(measured, who, total, shown=progress and total > 0)
    if not Journal(run.folder).replace_evaluations(list(events)):
        print(
            f"{run.folder} is used by a run that goes on: these scores are of the samples so far, "
            "and are not kept",
            file=sys.stderr,
        )
    return events


def _told(events: Iterator[Event], who: str, total: int, *, shown: bool) -> Iterator[Event]:
    """The same events, of which those of corrupted sets are told."""
    label, words = f"{who} corrupted", _corruption_in_words
    made = make_progress(label, 0, total, shown=shown, words=words, unit="set")
    with closing(made) as progress:
        for event in events:
            if _is_detail(event["set"]):
                progress.advance()
                progress.show(event)
            yield event


def _corruption_in_words(event: Mapping[str, Any]) -> str:
    """The score on one corrupted set.

    >>> _corruption_in_words({"set": "corrupted:fog:3", "nll": 0.5})
    'fog:3, NLL 0.5000'
    """
    return f"{event['set'].removeprefix('corrupted:')}, NLL {event['nll']:.4f}"


def measure(
    run: Run, who: str, corruptions: Sequence[str], severities: Sequence[int]
) -> Iterator[Event]:
    """One event for each data set."""
    test = run.problem.test
    if test is None:
        raise ConfigError(
            f"{run.folder} has no test data; let data return (train, test) to evaluate"
        )
    made = run.predictions.whole(TEST)
    targets = run.predictions.targets(TEST)
    for roles, average in made.averages.items():
        name = who if roles == BOTH else f"{who} {roles}"
        scores = prediction_scores(average, targets)
        yield {"set": TEST, "who": name, "samples": made.count(roles), **scores}
    for name in run.predictions.names:
        if name.startswith(OOD):
            other = run.predictions.whole(name)
            scores = detection_scores(made.probabilities(), other.probabilities())
            yield {"set": name, "who": who, **scores}
    if has_ood(test):
        yield from _corrupted(run, who, test, corruptions, severities)


def _corrupted(
    run: Run, who: str, test: Dataset, names: Sequence[str], severities: Sequence[int]
) -> Iterator[Event]:
    for severity in severities:
        scored: list[dict[str, float]] = []
        for name in names:
            changed = prepared(run, data_sets.corrupt(test.inputs, name, severity))
            average = average_over_samples(run.posterior, changed)
            scored.append(prediction_scores(average, test.targets))
            yield {"set": f"corrupted:{name}:{severity}", "who": who, **scored[-1]}
        if scored:
            shared = set.intersection(*map(set, scored))
            means = {k: sum(s[k] for s in scored) / len(scored) for k in scored[0] if k in shared}
            yield {"set": f"corrupted:mean:{severity}", "who": who, **means}


COLUMNS = ("accuracy", "nll", "ece", "rmse", "coverage", "auroc", "fpr95")


def table(events: Sequence[Event]) -> str:
    """The numbers as aligned text; single corruption types stay in `metrics.jsonl`."""
    shown = [e for e in events if not _is_detail(e["set"])]
    columns = [name for name in COLUMNS if any(name in event for event in shown)]
    head = ["set", "method", *columns]
    body = [[e["set"], e["who"], *(_cell(e.get(name)) for name in columns)] for e in shown]
    return aligned([head, *body], left=2)


def _is_detail(name: str) -> bool:
    return name.startswith("corrupted:") and not name.startswith("corrupted:mean:")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"

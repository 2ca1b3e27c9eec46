"""Nine UCI regressions at their standard splits, tuned without the test rows.

Every split chooses its own settings on a fifth of its own training rows: a choice over all splits
would leak, since what one split holds out, another one trains on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.data.tabular import UCI
from entropy_mcmc_reproduction import regression_chains, regression_view
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.regression_chains import KINDS, Course
from entropy_mcmc_reproduction.regression_data import Splits, read
from entropy_mcmc_reproduction.regression_noise import NoisePosterior, prior_from
from entropy_mcmc_reproduction.regression_scores import SCORES, judge
from entropy_mcmc_reproduction.regression_shape import Shape
from entropy_mcmc_reproduction.regression_view import job_name
from entropy_mcmc_reproduction.trials import latin

_POINT = {"lr": (0.1, 1.0), "prior_variance": (0.3, 30.0)}
SPACES: dict[str, dict[str, tuple[float, float]]] = {
    "emcmc": {**_POINT, "horizon": (50.0, 2000.0)},
    "sghmc": _POINT,
    "ensemble": _POINT,
    "sgd": _POINT,
    "sgld": {**_POINT, "boost": (1.0, 30.0)},
}
LENGTHS = (1.0, 0.5)  # stopping points, as parts of the budget
COARSE = 4  # settings are first tried at a quarter of the budget
_COMMON = {
    "batch": 100,
    "hidden": 50,
    "samples": 8,
    "noise_from": 0.5,
    "keep_from": 0.75,
    "validation_part": 0.2,
    # Chosen by `regression_choice`; tails as text, since JSON has no infinity.
    "noise": {
        "tails": ["2", "3", "4", "6", "8", "16", "32", "inf"],
        "rows": 0.0,
        "variance": 1.0,
        "shape": "inputs",
    },
}
_FULL = {"passes": 300, "least": 8000, "most": 60_000, "trials": 6, "finalists": 2, "splits": None}
_SMOKE = {"passes": 2, "least": 160, "most": 160, "trials": 2, "finalists": 1, "splits": 2}
_SIZES: dict[str, dict[str, Any]] = {"smoke": _SMOKE, "laptop": _FULL, "paper": _FULL}
WIDER = {"protein": {"hidden": 100}}  # as published
_LONG = {"iterations": 800, "burn_in": 300, "thin": 20, "leapfrogs": 40, "chains": 4}
_SHORT = {"iterations": 20, "burn_in": 10, "thin": 2, "leapfrogs": 4, "chains": 2}
_HMC = {"smoke": _SHORT, "laptop": _LONG, "paper": _LONG}
REFERENCES = 2  # tables, the smallest ones
# The small tables first: what takes long comes last.
SMALL = ("yacht", "boston", "energy", "concrete", "wine-red")
TABLES = (*SMALL, "kin8nm", "power", "naval", "protein")


def tables(scale: str) -> tuple[str, ...]:
    """The tables of a scale; the smoke scale has one that is embedded."""
    assert sorted(TABLES) == sorted(UCI)
    return ("diabetes",) if scale == "smoke" else TABLES


def jobs(scale: str, place: Place) -> list[Job]:
    """A job for each method and table: its search and its splits.

    EMCMC's come first, then those of the small tables.
    """
    wanted = [(method, table) for method in SPACES for table in tables(scale)]
    wanted.sort(key=lambda pair: (pair[0] != "emcmc", pair[1] not in SMALL))
    made = [job_of(method, table, scale) for method, table in wanted]
    return [*made, *(reference_of(table, scale) for table in tables(scale)[:REFERENCES])]


def job_of(method: str, table: str, scale: str) -> Job:
    """The job of a method on a table."""
    settings = {**_COMMON, **_SIZES[scale], **WIDER.get(table, {}), "table": table}
    space = {name: list(ends) for name, ends in SPACES[method].items()}
    settings |= {"method": method, "space": space}
    return Job(job_name(table, method), "regression:compute", settings)


def reference_of(table: str, scale: str) -> Job:
    """HMC on a table, with the prior that EMCMC's search chose."""
    before = job_of("emcmc", table, scale)
    names = ("hidden", "validation_part", "noise", "splits", "table")
    settings = {name: before.settings[name] for name in names} | _HMC[scale]
    settings |= {"method": "hmc", "prior_of": before.name}
    return Job(job_name(table, "hmc"), "regression_hmc:compute", settings, (before,))


def unavailable(scale: str, place: Place) -> str | None:
    """The tables are not embedded."""
    if scale == "smoke" or place.data:
        return None
    return "it needs the UCI tables: set EMCMC_DATA"


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Successive halving on held-out training rows, then the final run of every split."""
    splits = Splits.of(*read(settings["table"], place.data, settings["splits"]))
    held = splits.validation(settings["validation_part"])
    trials = settings_of(settings)
    first = _validated(settings, held, [list(range(len(trials)))] * len(held), coarse=True)
    finalists = [_best(scores, settings["finalists"]) for scores in first.scores]
    second = _validated(settings, held, finalists, coarse=False)
    places = [_best(scores, 1)[0] for scores in second.scores]
    chosen = [many[place] for many, place in zip(finalists, places, strict=True)]
    runs = [len(places) * place + split for split, place in enumerate(places)]
    picked, shape = second.noise.of(runs), second.shape.of(runs)
    return {
        **_judged(settings, splits, chosen, picked, shape),
        "rows": splits.rows,
        "test_rows": splits.judged_inputs.shape[1],
        "gradients": gradients(settings, splits.rows),
        "trials": trials,
        "chosen": chosen,
        "noise": picked.typical().tolist(),
        "shape_spread": shape.spreads.tolist(),
        "validation_log_likelihood": first.scores,
        "finalists": finalists,
        "finalists_log_likelihood": second.scores,
    }


def settings_of(settings: Mapping[str, Any]) -> list[dict[str, float]]:
    """The tried settings: a Latin hypercube, every second one stopped early."""
    spread = latin(settings["method"], settings["space"], settings["trials"])
    return [{**each, "length": LENGTHS[i % 2]} for i, each in enumerate(spread)]


def gradients(settings: Mapping[str, Any], rows: int) -> int:
    """Mini-batches that a method may use for a split."""
    wanted = settings["passes"] * rows // settings["batch"]
    return int(min(max(wanted, settings["least"]), settings["most"]))


def course_of(settings: Mapping[str, Any], rows: int, chains: int, length: float) -> Course:
    """Course of each of `chains` chains that share a part of a split's gradients."""
    steps = int(length * gradients(settings, rows)) // chains
    names = ("batch", "hidden", "noise_from", "keep_from", "samples")
    return Course(steps=steps, **{name: settings[name] for name in names})


@dataclass(frozen=True)
class Validated:
    """What held-out rows say of settings.

    Attributes:
        scores: Evidence of the wanted settings of each split.
        noise: Of split after split of each split's first setting, then of its second, and so on.
        shape: How the noise varies from row to row, in the same order.
    """

    scores: list[list[float]]
    noise: NoisePosterior
    shape: Shape


def _validated(
    settings: Mapping[str, Any], held: Splits, wanted: Sequence[Sequence[int]], coarse: bool
) -> Validated:
    """The wanted settings of each split on its held-out rows.

    `coarse` is a quarter of the budget, one of four chains, and one noise variance for all rows.
    """
    kind = KINDS[settings["method"]]
    pairs = [(split, i) for i in range(len(wanted[0])) for split in range(len(wanted))]
    chains = 1 if coarse else kind.chains
    share = max(COARSE, kind.chains) if coarse else kind.chains
    made, parts, shapes = [], [], []
    for length, some in _by_length(settings, pairs, [wanted[s][i] for s, i in pairs]):
        part = held.only([split for (split, _), _ in some])
        course = course_of(settings, held.rows, share, length)
        numbers = _numbers(settings, [trial for _, trial in some])
        means = regression_chains.run(
            settings["method"], numbers, part, course, chains=chains, seed=1000 + coarse
        )
        made += [pair for pair, _ in some]
        shape, noise = noise_of(settings["noise"], means, part, flat=coarse)
        parts.append(noise)
        shapes.append(shape)
    order = [made.index(pair) for pair in pairs]
    noise = NoisePosterior.together(parts).of(order)
    scores = noise.evidence.view(-1, len(wanted)).T.tolist()
    return Validated(scores, noise, Shape.together(shapes).of(order))


def noise_of(
    values: Mapping[str, Any], means: Tensor, held: Splits, flat: bool = False
) -> tuple[Shape, NoisePosterior]:
    """What errors on held-out rows say of the noise; `flat`: one variance for all rows."""
    rows = means, held.judged_inputs, held.judged_targets
    shape = Shape.flat(values["shape"], *rows[:2]) if flat else Shape.given(values["shape"], *rows)
    relative = shape.relative(means, held.judged_inputs)
    prior = prior_from(values)
    return shape, NoisePosterior.given(means, held.judged_targets, prior, relative)


def _judged(
    settings: Mapping[str, Any],
    splits: Splits,
    chosen: Sequence[int],
    noise: NoisePosterior,
    shape: Shape,
) -> dict[str, list[float]]:
    """Scores of the test rows: the only place where they are used."""
    kind = KINDS[settings["method"]]
    result: dict[str, list[float]] = {name: [0.0] * len(splits) for name in SCORES}
    for length, some in _by_length(settings, [(s, 0) for s in range(len(splits))], chosen):
        members = [split for (split, _), _ in some]
        part = splits.only(members)
        course = course_of(settings, splits.rows, kind.chains, length)
        numbers = _numbers(settings, [trial for _, trial in some])
        means = regression_chains.run(
            settings["method"],
            numbers,
            part,
            course,
            chains=kind.chains,
            seed=0,
            guess=noise.of(members).typical().float(),
        )
        for name, values in judge(means, part, noise.of(members), shape.of(members)).items():
            for split, value in zip(members, values, strict=True):
                result[name][split] = value
    return result


Pair = tuple[int, int]


def _by_length(
    settings: Mapping[str, Any], pairs: Sequence[Pair], trials: Sequence[int]
) -> Iterator[tuple[float, list[tuple[Pair, int]]]]:
    """Pairs with their settings, those of one stopping point together: they run as one stack."""
    known = settings_of(settings)
    for length in LENGTHS:
        some = [
            (pair, trial)
            for pair, trial in zip(pairs, trials, strict=True)
            if known[trial]["length"] == length
        ]
        if some:
            yield length, some


def _numbers(settings: Mapping[str, Any], trials: Sequence[int]) -> dict[str, Tensor]:
    known = settings_of(settings)
    return {
        name: torch.tensor([known[trial][name] for trial in trials]) for name in settings["space"]
    }


def _best(scores: Sequence[float], count: int) -> list[int]:
    """Places of the highest scores.

    >>> _best([1.0, 3.0, 2.0], 2)
    [1, 2]
    """
    return sorted(range(len(scores)), key=lambda i: -scores[i])[:count]


ITEM = Item(
    "Nine UCI regressions, standard splits",
    "beyond the paper",
    jobs,
    regression_view.show,
    unavailable,
)

"""The pilot: how many pictures, augmented or not, can one network fit with a scale's budget?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.methods import ENTRIES, job
from entropy_mcmc_reproduction.scale import Scale, scale

GROUP = "pilot"
FITTED = 0.99  # training accuracy of a network that fits

# Pictures, and whether they are augmented.
Regime = tuple[int, bool]
REGIMES: tuple[Regime, ...] = ((3000, False), (3000, True), (10_000, True))
SMOKE: tuple[Regime, ...] = ((128, False), (128, True))


def regimes(size: str) -> tuple[Regime, ...]:
    """The candidates of a scale."""
    return SMOKE if size == "smoke" else REGIMES


def _name(regime: Regime) -> str:
    rows, augmented = regime
    return f"sgd-{rows}{'-augmented' if augmented else ''}"


def jobs(size: str, place: Place) -> list[Job]:
    """SGD in every regime with the same number of gradients, judged on held-out training data."""
    chosen = scale(size)
    return [
        job("sgd", 0, _in(chosen, regime), {}, group=GROUP, label=_name(regime))
        for regime in regimes(size)
    ]


def _in(chosen: Scale, regime: Regime) -> Scale:
    rows, augmented = regime
    held = chosen.validation_rows or chosen.data["test_rows"]
    data = {**chosen.data, "rows": rows, "validation": True, "test_rows": held}
    epochs = round(chosen.epochs * chosen.data["rows"] / rows)
    return replace(chosen, data=data, augmented=augmented, epochs=epochs)


def unavailable(size: str, place: Place) -> str | None:
    """At the paper's scale there is nothing to choose."""
    return "the paper's own setting is used as it is" if size == "paper" else None


def show(results: Results, size: str) -> Outcome:
    """Which regimes are fitted."""
    chosen = scale(size)
    rows = [
        _row(regime, results[f"{GROUP}/{_name(regime)}-0"], _in(chosen, regime))
        for regime in regimes(size)
        if f"{GROUP}/{_name(regime)}-0" in results
    ]
    return Outcome(COLUMNS, rows, [], notes=[_note(chosen)])


COLUMNS = [
    "training pictures",
    "passes",
    "training accuracy %",
    "training NLL",
    "held-out accuracy %",
    "held-out NLL",
    f"fitted ({FITTED:.0%})",
]


def _row(regime: Regime, result: dict[str, Any], made: Scale) -> list[str]:
    rows, augmented = regime
    train, held = result["train"]["both"], result["test"]["both"]
    return [
        f"{rows:,}{', augmented' if augmented else ''}",
        str(made.epochs),
        *(cell for part in (train, held) for cell in _cells(part)),
        "yes" if train["accuracy"] >= FITTED else "no",
    ]


def _cells(scores: dict[str, float]) -> list[str]:
    return [f"{100 * scores['accuracy']:.1f}", f"{scores['nll']:.3f}"]


def _note(chosen: Scale) -> str:
    numbers = ", ".join(f"{k} {v:g}" for k, v in ENTRIES["sgd"].numbers.items())
    way = "augmented" if chosen.augmented else "not augmented"
    return (
        f"One network of SGD ({numbers}; one seed), the same number of gradients in "
        "every regime, judged on pictures without augmentation. The paper's networks fit their "
        "training set; one that underfits gains from longer training, not from averaging. The "
        f"picture items therefore use {chosen.data['rows']:,} pictures, {way}."
    )


ITEM = Item(
    "which pictures one network can fit, for the choice of the data",
    "beyond the paper",
    jobs,
    show,
    unavailable,
)

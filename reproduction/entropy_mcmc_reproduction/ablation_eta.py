"""Appendix: the variance η of the guide."""

from __future__ import annotations

from pathlib import Path

from entropy_mcmc_reproduction.ablations import SCORES, WHO, note, row, scores, variant
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results, Verdict
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.text import compared, mean_error

# ηN/lr, the number of steps over which the guide averages: η alone means nothing without N and lr.
HORIZONS = (2, 5, 15, 50, 150, 500)
SMOKE = (2, 50)
MIDDLE = 50


def horizons(size: str) -> tuple[int, ...]:
    """Those of a scale."""
    return SMOKE if size == "smoke" else HORIZONS


def jobs(size: str, place: Place) -> list[Job]:
    """EMCMC with every η, given as the averaging horizon."""
    return [
        made
        for steps in horizons(size)
        for made in variant(
            size, place, "emcmc", f"emcmc-horizon{steps}", numbers={"horizon": float(steps)}
        )
    ]


def show(results: Results, size: str) -> Outcome:
    """Scores of the posterior, and of θ and θ_a alone, by η."""
    rows = []
    for steps in horizons(size):
        label = f"emcmc-horizon{steps}"
        if scores(results, label):
            rows += [
                row(results, f"{steps} steps, {name}", label, who) for who, name in WHO.items()
            ]
    figures = {"ablation-eta": lambda path: draw(results, size, path)} if rows else {}
    columns = ["ηN/lr, samples", *SCORES]
    return Outcome(columns, rows, _verdicts(results, size), figures, [note(size), NOTE])


def _verdicts(results: Results, size: str) -> list[Verdict]:
    """The paper's figure has its best η between the ends."""
    made = []
    mine = scores(results, f"emcmc-horizon{MIDDLE}", "test", "both", "accuracy")
    for steps in (horizons(size)[0], horizons(size)[-1]):
        other = scores(results, f"emcmc-horizon{steps}", "test", "both", "accuracy")
        if steps != MIDDLE and other and len(other) == len(mine):
            claim = f"a middle η ({MIDDLE} steps) is more accurate than one of {steps} steps"
            made.append(compared(claim, mine, other, lower=False, percent=True))
    return made


NOTE = (
    "The paper finds η ≈ 1e-3 best on CIFAR-10 (N = 50,000, lr 0.5: ηN/lr = 100 steps of 20,000 "
    "in a cycle). Only the horizon ηN/lr beside the length of a cycle carries over."
)


def draw(results: Results, size: str, path: Path) -> None:
    """NLL against the horizon."""
    figure, (axis,) = panels(1, columns=1, width=4.5, height=3.0)
    for (who, name), colour in zip(WHO.items(), ("emcmc", "guide", "sgd"), strict=True):
        points = [
            (steps, *mean_error(found))
            for steps in horizons(size)
            if (found := scores(results, f"emcmc-horizon{steps}", "test", who, "nll"))
        ]
        x, mean, error = zip(*points, strict=True)
        axis.errorbar(
            x, mean, [e or 0.0 for e in error], color=PALETTE[colour], marker="o", ms=3, label=name
        )
    axis.set_xscale("log")
    axis.set_xticks(horizons(size), [str(steps) for steps in horizons(size)])
    axis.minorticks_off()
    axis.set_xlabel("averaging horizon ηN/lr in steps", fontsize=8)
    axis.set_ylabel("test NLL", fontsize=8)
    axis.legend(fontsize=7, frameon=False)
    save(figure, path)


ITEM = Item("variance of the guide", "appendix, η figure", jobs, show)

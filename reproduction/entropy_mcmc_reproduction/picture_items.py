"""Pictures by the protocol: EMCMC against its rivals on tasks of the tournament, in its store.

SAM, bSAM, IVON, Entropy-SG(L)D and augmentation are not built into the tournament's engine yet: for
them the items of the first edition stand.
"""

from __future__ import annotations

from dataclasses import dataclass

from entropy_mcmc_reproduction import stored_runs
from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.seeds import by_seed, values
from entropy_mcmc_reproduction.text import number
from tournament.tasks import TASKS


@dataclass(frozen=True)
class Pictures:
    """One task: what it is called, where the paper has it, and how many seeds judge it."""

    title: str
    where: str
    seeds: int


PICTURES = {
    "cifar": Pictures("CIFAR-10, 3,000 pictures, ResNet-8", "Tables 1a, 2; calibration", 8),
    "fashion-mlp": Pictures("Fashion-MNIST, 6,000 pictures, MLP", "beyond the paper", 10),
    "fashion-cnn": Pictures("Fashion-MNIST, 6,000 pictures, CNN", "beyond the paper", 5),
}
METHODS = (
    "SGD",
    "SWA",
    "EMA",
    "snapshots",
    "iterates",
    "SGLD",
    "SGHMC",
    "EMCMC",
    "guide",
    "ensemble 4",
    "iterates ×4",
    "SGHMC ×4",
    "EMCMC ×4",
)
# The paper's NLL on CIFAR-10 (Table 1a: ResNet-18, all pictures, 200 passes).
PAPER_NLL = {"SGD": "0.162 against 0.205", "SGLD": "0.162 against 0.167"}
RIVALS = {  # each against rivals of as many chains
    "EMCMC": ("SGD", "SWA", "EMA", "iterates", "snapshots", "SGLD", "SGHMC", "ensemble 4"),
    "EMCMC ×4": ("ensemble 4", "iterates ×4", "SGHMC ×4"),
}
MEASURES = (
    ("nll", "NLL", 4, 1.0),
    ("ece", "ECE %", 2, 100.0),
    ("accuracy", "accuracy %", 2, 100.0),
    ("auroc", "AUROC of OOD data %", 2, 100.0),
)
SMOKE_TASK, SMOKE_SHARE, SMOKE_SEEDS = "digits", 0.05, 2


def item(name: str) -> Item:
    """The item of a task."""
    chosen = PICTURES[name]
    return Item(
        chosen.title,
        chosen.where,
        lambda size, place: jobs(name, size, place),
        lambda results, size: show(name, results, size),
        lambda size, place: None if size == "smoke" or place.data else "it needs data: EMCMC_DATA",
        second_edition=True,
    )


def jobs(name: str, size: str, place: Place) -> list[Job]:
    """Every method with every seed; all methods of a seed before the next seed."""
    smoke = size == "smoke"
    task, share = (SMOKE_TASK, SMOKE_SHARE) if smoke else (name, 1.0)
    return [
        stored_runs.job(_label(name, method), stored_runs.by_name(method), task, seed, share=share)
        for seed in range(SMOKE_SEEDS if smoke else PICTURES[name].seeds)
        for method in METHODS
    ]


def _label(name: str, method: str) -> str:
    return f"{name}/{method.replace(' ', '-').replace('×', 'x')}"


def show(name: str, results: Results, size: str) -> Outcome:
    """A row for each method that has results, then EMCMC against its rivals, NLL first."""
    rows = [_row(name, method, results) for method in METHODS if _seeds(name, method, results)]
    claims = [
        Claim(
            f"{ours} is better than {rival}",
            _label(name, ours),
            _label(name, rival),
            measure,
            PAPER_NLL.get(rival, "") if (name, measure, ours) == ("cifar", "nll", "EMCMC") else "",
        )
        for measure, *_ in MEASURES
        for ours, rivals in RIVALS.items()
        for rival in rivals
    ]
    columns = ["method", "seeds", *(text for _, text, _, _ in MEASURES)]
    task = TASKS[SMOKE_TASK if size == "smoke" else name]
    note = (
        f"`{task.name}` of the [tournament](comparison.md#tasks), each method by its recipe at "
        f"the same cost ({task.passes:g} passes); ± is the standard error over seeds."
    )
    return Outcome(columns, rows, verdicts(claims, results), notes=[note])


def _seeds(name: str, method: str, results: Results) -> int:
    return len(by_seed(results, _label(name, method)))


def _row(name: str, method: str, results: Results) -> list[str]:
    label = _label(name, method)
    scores = [
        (list(values(results, label, "measures", key).values()), digits, factor)
        for key, _, digits, factor in MEASURES
    ]
    cells = [number(found, digits, factor) for found, digits, factor in scores]
    return [method, str(_seeds(name, method, results)), *cells]

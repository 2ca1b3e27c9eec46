"""Table and verdicts of flatness at equal training NLL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.items import Outcome, Results, Verdict
from entropy_mcmc_reproduction.seeds import by_seed
from entropy_mcmc_reproduction.text import number, significant

METHODS = ("SGD", "SAM", "SGHMC", "EMCMC")
OURS, GUIDE = "EMCMC", "guide"
ROLES = {"SGD": "SGD", "SAM": "SAM", "SGHMC": "SGHMC", OURS: "EMCMC, θ", GUIDE: "EMCMC, guide"}
MEASURES = {  # all but the first as logarithms
    "nll": "test NLL",
    "lambda_max": "λ_max",
    "trace": "trace of the Hessian",
    "fisher": "trace of the Fisher",
    "llc": "LLC",
}
LIMITS = {"SGD": "taken before the end of its run, where lr limits the curvature: this favours SGD"}
FARTHEST = math.log(1.25)  # a ratio of training NLLs beyond which two networks are not matched
COLUMNS = ["network", "seeds", "step", "training NLL", "of the last", *MEASURES.values()]


def job_name(seed: int) -> str:
    """Name of the job of a seed."""
    return f"flatness/seed-{seed}"


def show(results: Results, scale: str) -> Outcome:
    """A row for each role at the matched checkpoints, then the claims, NLL first."""
    found = matched(results)
    rows = [_row(role, found) for role in ROLES if _of(found, role)]
    return Outcome(COLUMNS, rows, _verdicts(found), notes=_notes(results, found))


def matched(results: Results) -> dict[str, dict[str, Any]]:
    """Results named role-SEED, of roles whose checkpoint has the seed's level."""
    return {
        f"{role}-{name.rpartition('-')[2]}": values
        for name, result in results.items()
        for role, values in result["roles"].items()
        if abs(math.log(values["train_nll"] / result["level"])) <= FARTHEST
    }


def _of(found: Mapping[str, dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return list(by_seed(found, role).values())


def _row(role: str, found: Mapping[str, dict[str, Any]]) -> list[str]:
    seeds = _of(found, role)
    cells = [
        number([s["step"] for s in seeds], 0),
        significant([s["train_nll"] for s in seeds]),
        significant([s["last_train_nll"] for s in seeds]),
    ]
    for measure in MEASURES:
        values = [s["measures"][measure] for s in seeds if measure in s["measures"]]
        shown = values if measure == "nll" else [math.exp(value) for value in values]
        short = f" ({len(values)} seeds)" if len(values) < len(seeds) else ""
        cells.append(significant(shown) + short if shown else "–")
    return [ROLES[role], str(len(seeds)), *cells]


def _verdicts(found: Mapping[str, dict[str, Any]]) -> list[Verdict]:
    made = []
    for measure, what in MEASURES.items():
        known = {n: values for n, values in found.items() if measure in values["measures"]}
        way = "predicts better" if measure == "nll" else f"is flatter, by {what},"
        claims = [
            Claim(
                f"{ROLES[ours]} {way} than {rival} at equal training NLL",
                ours,
                rival,
                measure,
                source="paper" if rival == "SGD" and measure != "nll" else "ours",
                limit=LIMITS.get(rival, ""),
                short=f"{ROLES[ours].removeprefix('EMCMC, ')} by {what}",
            )
            for ours in (OURS, GUIDE)
            for rival in METHODS
            if rival != OURS
        ]
        made += verdicts(claims, known)
    return made


def _notes(results: Results, found: Mapping[str, dict[str, Any]]) -> list[str]:
    levels = [result["level"] for result in results.values()]
    wanted = sum(len(result["roles"]) for result in results.values())
    return [
        "`digits` of the [tournament](comparison.md#tasks), every method by its recipe. For each "
        "seed the level is the lowest training NLL that all networks reach (mean "
        f"{np.mean(levels):.3g}); each row is the checkpoint nearest to it. {wanted - len(found)} "
        f"of {wanted} are farther than 25 % from it and left out. Of methods with noise only "
        "checkpoints while it is on count.",
        "Curvatures are of the training NLL on the same rows for all. Differences are of "
        "logarithms, alike within ±0.1 (10 %). The LLC is left out where its own checks say that "
        "it cannot be trusted. A matched network of SGD is one before the end of its run, where lr "
        "is still high, and lr itself limits λ_max: this favours SGD.",
    ]

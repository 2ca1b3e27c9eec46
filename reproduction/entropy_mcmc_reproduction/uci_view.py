"""Table, figure and verdicts of the UCI regressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Outcome, Results, Verdict
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, decision, mean_error, number

METHODS = {"sgd": "SGD", "ensemble": "Deep ensemble", "sgld": "SGLD", "emcmc": "EMCMC"}
SCORES = {"log_likelihood": "log-likelihood", "rmse": "RMSE", "coverage": "95 % coverage"}


def job_name(table: str, method: str) -> str:
    """Name of the job of a data set and method."""
    return f"uci/{table}-{method}"


def show(results: Results, scale: str) -> Outcome:
    """One row for each table, score and its four methods."""
    tables = list(dict.fromkeys(name.removeprefix("uci/").rpartition("-")[0] for name in results))
    found = {
        t: {m: results[job_name(t, m)] for m in METHODS if job_name(t, m) in results}
        for t in tables
    }
    whole = {table: by for table, by in found.items() if len(by) == len(METHODS)}
    if not whole:
        return Outcome([], [], [])
    rows = [
        [table, label, *(_cell(by[m], score) for m in METHODS)]
        for score, label in SCORES.items()
        for table, by in whole.items()
    ]
    return Outcome(
        ["table", "score", *METHODS.values()],
        rows,
        [_verdict(whole, other) for other in ("sgld", "sgd", "ensemble")],
        {"uci": lambda path: draw(path, whole)},
        _notes(whole),
    )


def _cell(result: dict[str, Any], score: str) -> str:
    values = result[score]
    if score == "coverage":
        return number(values, 1, 100) + " %"
    digits = 2 if abs(float(np.mean(values))) >= 0.1 else 5
    return number(values, digits)


def _notes(whole: dict[str, Any]) -> list[str]:
    splits = ", ".join(f"{t} {len(by['emcmc']['rmse'])}" for t, by in whole.items())
    trials = sorted({len(r["trials"]) for by in whole.values() for r in by.values()})
    return [
        f"± standard error over the standard splits ({splits}), which share rows: the errors are "
        "too small, and the verdicts correct them (Nadeau and Bengio, 2003). One hidden layer of "
        "50 ReLUs (100 for protein), one learned noise variance, prior N(0, 1) on every weight, "
        "gradients clipped at norm 1, also while sampling: where that is often, the chains sample "
        "a wider distribution than the posterior. Every method has the same "
        "number of gradients for each split; the ensemble's four members share it; SGLD and EMCMC "
        "spend half of it on an SGD warm start, then make 4 cycles and keep 16 samples (EMCMC: 8 "
        "of θ, 8 of θ_a). The hyper-parameters of every method are chosen for each split alone, "
        "by the log-likelihood of a fifth of its training rows, from "
        f"{'/'.join(map(str, trials))} trials; test rows were never used for a choice."
    ]


def _verdict(whole: dict[str, Any], other: str) -> Verdict:
    """Over tables: in how many EMCMC's log-likelihood is better, and in how many worse."""
    found = {table: _decided(by, other) for table, by in whole.items()}
    wins = [table for table, decided in found.items() if decided == HOLDS]
    losses = [table for table, decided in found.items() if decided == FAILS]
    measured = (
        f"better in {len(wins)} of {len(whole)} tables{_list(wins)}, worse in {len(losses)}"
        f"{_list(losses)}, the rest not decided"
    )
    overall = UNDECIDED
    if abs(len(wins) - len(losses)) > len(whole) / 2:
        overall = HOLDS if len(wins) > len(losses) else FAILS
    claim = f"(beyond the paper) EMCMC has a better log-likelihood than {METHODS[other]}"
    return Verdict(claim, measured, overall)


def _decided(by: dict[str, Any], other: str) -> str:
    """For one table, paired by split; splits that share rows are corrected for.

    The training rows of two splits overlap, so their scores are correlated, by about the test
    rows' share: Nadeau and Bengio (2003) add test / training rows to 1 / splits.
    """
    ours = by["emcmc"]
    pairs = zip(ours["log_likelihood"], by[other]["log_likelihood"], strict=True)
    gains = [a - b for a, b in pairs]
    mean, error = mean_error(gains)
    if error is None:
        return UNDECIDED
    inflation = (1 + len(gains) * ours["test_rows"] / ours["rows"]) ** 0.5
    return decision(mean, error * inflation, len(gains))


def _list(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def draw(path: Path, whole: dict[str, Any]) -> None:
    """Log-likelihood and RMSE against SGD's, and the coverage, table by table."""
    figure, axes = panels(3, 3, 4.2, 0.45 * len(whole) + 1.8)
    places = np.arange(len(whole))
    for index, (method, label) in enumerate(METHODS.items()):
        shift = places + 0.17 * (index - 1.5)
        for axis, score in zip(axes, SCORES, strict=True):
            ends = [_against(by, method, score) for by in whole.values()]
            means, errors = (np.array(side, dtype=float) for side in zip(*ends, strict=True))
            axis.errorbar(
                means, shift, xerr=errors, fmt="o", ms=4, color=PALETTE[method], label=label
            )
    titles = ("log-likelihood − SGD's", "RMSE / SGD's", "95 % coverage")
    for axis, title, line in zip(axes, titles, (0.0, 1.0, 95.0), strict=True):
        axis.axvline(line, color="grey", lw=0.8, ls="--")
        axis.set_xlabel(title)
        axis.set_yticks(places, list(whole) if axis is axes[0] else [""] * len(whole))
        axis.set_ylim(len(whole) - 0.5, -0.5)
    # Some tables differ by hundredths, others by whole units.
    axes[0].set_xscale("symlog", linthresh=0.1)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    save(figure, path)


def _against(by: dict[str, Any], method: str, score: str) -> tuple[float, float]:
    ours, base = np.array(by[method][score]), np.array(by["sgd"][score])
    if score == "coverage":
        compared = 100 * ours
    else:
        compared = ours / base.mean() if score == "rmse" else ours - base
    mean, error = mean_error(compared.tolist())
    return mean, error or 0.0

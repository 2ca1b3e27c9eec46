"""Table, figures and verdicts of what lies around networks at equal training NLL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.flatness_view import GUIDE, LIMITS, OURS, matched
from entropy_mcmc_reproduction.items import Outcome, Results, Verdict
from entropy_mcmc_reproduction.seeds import by_seed
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, number, significant

METHODS = ("SGD", "SGLD", "SAM", "SGHMC", "EMCMC")
ROLES = {**{name: name for name in METHODS[:-1]}, OURS: "EMCMC, θ", GUIDE: "EMCMC, guide"}
COLOURS = {"SGD": "sgd", "SGLD": "sgld", "SAM": "sam", "SGHMC": "sghmc", OURS: "emcmc"}
COLOURS[GUIDE] = "guide"
PAPERS_RIVALS = ("SGD", "SGLD")
RISE = "the training NLL rises less along random directions around {} than around {}"
STYLES = ("-", "--")  # in turns: some curves coincide
BARRIER = 0.01  # nats; less than this counts as none


def job_name(seed: int) -> str:
    """Name of the job of a seed."""
    return f"neighbourhood/seed-{seed}"


def show(results: Results, scale: str) -> Outcome:
    """A row for each role, then the claims."""
    if not results:
        return Outcome([], [], [])
    found = matched(results)
    distances = next(iter(results.values()))["distances"]
    rows = [_row(role, _of(found, role)) for role in ROLES if _of(found, role)]
    columns = ["training NLL at distance", "seeds", *(f"{d:g}" for d in distances)]
    columns.append("test error % at the last")
    made = [*_verdicts(found), _between(results)]
    figures = {
        "interpolation": lambda path: draw_lines(results, found, distances, path),
        "spectrum": lambda path: draw_spectra(found, path),
    }
    return Outcome(columns, rows, made, figures, _notes(results))


def _of(found: Mapping[str, dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return list(by_seed(found, role).values())


def _row(role: str, seeds: list[dict[str, Any]]) -> list[str]:
    losses = [significant([s["loss"][k] for s in seeds]) for k in range(len(seeds[0]["loss"]))]
    error = number([s["error"][-1] for s in seeds], 1, 100)
    return [ROLES[role], str(len(seeds)), *losses, error]


def _verdicts(found: Mapping[str, dict[str, Any]]) -> list[Verdict]:
    claims = [
        Claim(
            RISE.format(ROLES[ours], rival),
            ours,
            rival,
            "rise",
            source="paper" if rival in PAPERS_RIVALS else "ours",
            limit=LIMITS.get(rival, ""),
            short=f"{ROLES[ours].removeprefix('EMCMC, ')} than {rival}",
        )
        for ours in (OURS, GUIDE)
        for rival in METHODS[:-1]
    ]
    return verdicts(claims, found)


def _between(results: Results) -> Verdict:
    barriers = [result["between"]["barrier"] for result in results.values()]
    decision = HOLDS if max(barriers) <= BARRIER else FAILS
    return Verdict(
        "θ and θ_a lie in one basin: no barrier above the worse end",
        f"largest barrier {max(barriers):.2g} nats in {len(barriers)} seeds; "
        f"up to {BARRIER:g} counts as none",
        decision if len(barriers) > 1 else UNDECIDED,
        short="one basin",
    )


def _notes(results: Results) -> list[str]:
    lengths = [result["between"]["distance"] for result in results.values()]
    return [
        "`digits` of the [tournament](comparison.md#tasks), networks matched as in "
        "[flatness](#flatness): every role of a seed at the same training NLL. Distances are "
        "Euclidean, 10 random directions for each network, the same for all; the rise is that at "
        "the last distance, compared as a logarithm, alike within ±0.1 (10 %). A matched network "
        "of SGD is one before the end of its run, which favours it. Traces of the Fisher are "
        "compared in [flatness](#flatness).",
        f"θ and its guide at the last step are {significant(lengths)} apart. The Fisher diagonal "
        "is the paper's stand-in for the spectrum of the Hessian.",
    ]


def draw_lines(
    results: Results, found: Mapping[str, dict[str, Any]], distances: list[float], path: Path
) -> None:
    """Training NLL and test error along random directions; both from θ to θ_a."""
    figure, axes = panels(4, columns=2)
    for place, role in enumerate(role for role in ROLES if _of(found, role)):
        style = {"color": PALETTE[COLOURS[role]], "label": ROLES[role], "ls": STYLES[place % 2]}
        for axis, key in zip(axes, ("loss", "error"), strict=False):
            mean = np.mean([s[key] for s in _of(found, role)], axis=0)
            axis.plot(distances, mean, marker=".", lw=1.6, **style)
    for axis, label in zip(axes, ("training NLL", "test error"), strict=False):
        axis.set_xlabel("distance along a random direction", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, loc="upper left")
    for result in results.values():
        walked = result["between"]
        places = np.linspace(0, 1, len(walked["loss"]))
        for axis, key in zip(axes[2:], ("loss", "error"), strict=True):
            axis.plot(places, walked[key], color=PALETTE["emcmc"], lw=1)
    for axis, label in zip(axes[2:], ("training NLL", "test error"), strict=True):
        axis.set_xlabel("from θ (0) to θ_a (1), a line for each seed", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
    save(figure, path)


def draw_spectra(found: Mapping[str, dict[str, Any]], path: Path) -> None:
    """Histograms of the Fisher diagonal, all seeds together."""
    from entropy_mcmc_reproduction.neighbourhood import EDGES

    shown = [role for role in ROLES if _of(found, role)]
    figure, axes = panels(len(shown), columns=3, share=True, height=2.0)
    counts = {role: np.sum([s["fisher"] for s in _of(found, role)], axis=0) for role in shown}
    for axis, role in zip(axes, shown, strict=True):
        axis.stairs(counts[role], EDGES, fill=True, color=PALETTE[COLOURS[role]])
        traces = [math.exp(s["measures"]["fisher"]) for s in _of(found, role)]
        axis.set_title(f"{ROLES[role]}: trace {np.mean(traces):.2g}", fontsize=8)
    used = np.sum(list(counts.values()), axis=0) > 0
    axes[0].set_xlim(EDGES[:-1][used].min(), EDGES[1:][used].max())
    figure.supxlabel("log10 of the diagonal Fisher information", fontsize=8)
    figure.supylabel("parameters", fontsize=8)
    save(figure, path)

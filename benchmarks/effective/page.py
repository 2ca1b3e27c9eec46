"""The page docs/ess.md, from the results of benchmarks/ess.py."""

from __future__ import annotations

from statistics import median
from typing import Any

from effective import measure, others, ours, targets

INTRO = """\
# Effective samples per gradient

A chain's draws are correlated. The effective sample size (ESS) says how many independent draws
they are worth. The tables below give the ESS per gradient and per second of rules of this library,
beside blackjax and posteriors.

- ESS is that of the worst coordinate (of the Bayesian network: of the worst of 20 predictions).
- A step size counts only if the variances it gives are right to 5 %, within two standard errors,
  and if the run has at least 25 effective samples. The bias is the largest over ten groups of
  coordinates of similar variance, each the mean of its relative errors: that of one coordinate out
  of 784 would be chance. Each sampler has two runs or more: a first step size, and then what its
  bias suggests. So the best step size is found roughly.
- Variances are exact (Gaussians), from quadrature (two modes), or those of a NUTS run of four
  chains with 800 draws each.
- All chains start from draws of the target. NUTS and MCLMC start adapted. Nobody's warm-up and
  compilation is counted.
- Seconds are CPU-seconds of one thread. In the tables of single targets this library runs
  uncompiled and blackjax compiled, on a busy machine: read their ESS per gradient.
- Friction of underdamped samplers is half of what is critical for the softest direction, for this
  library and the others alike. This, the grouping of coordinates, the first step sizes and the
  number of runs of each sampler were settled after first results had been seen: these tables are
  exploratory, with one seed.
- η of EMCMC is 4 over the largest curvature (1 over it for `exact` and `gibbs`).
- A missing cell was not measured, or its search for a step size did not end: posteriors' SGLD with
  control variates stopped at half of blackjax's step, and no number is given for it.
- θ of EMCMC with a collapsed guide is SGLD, SGHMC, `lm` or `baoab`, number for number: see there.

Made by `benchmarks/ess.py`: `run`, `seconds` and `render`, from `results/benchmarks/ess.json`.
"""
PRIORS = {
    "logistic": f"Prior variance {targets.PRIOR_VARIANCE:g}. Four chains.",
    "network": f"Prior variance {targets.NETWORK_PRIOR:g}, noise {targets.NOISE:g}.",
}
NAMES = ("gaussian-10", "gaussian-1000", "two-modes", "logistic-full", "logistic-64")
NAMES += ("logistic-64-control", "network")
RIVALS = ("blackjax SGLD", "posteriors SGLD")


def page(stored: dict[str, Any]) -> str:
    """The whole page."""
    lines = [INTRO, state(stored), ""]
    if stored["seconds"]:
        lines += ["## Seconds: logistic regression", "", *seconds_section(stored)]
    for name, known in stored["targets"].items():
        lines += ["", *target_section(name, known, stored)]
    return "\n".join(lines) + "\n"


def state(stored: dict[str, Any]) -> str:
    """What has been run of what was planned: every sampler on every target."""
    samplers = len(ours.METHODS) + len(others.METHODS)
    counts = {name: 0 for name in NAMES}
    for key in stored["cells"]:
        counts[key.split(" | ")[0]] = counts.get(key.split(" | ")[0], 0) + 1
    parts = "; ".join(f"{name} {counts[name]}" for name in counts)
    return (
        f"**What has been run**, of {samplers} samplers: {parts}. `run` goes on where it stopped."
    )


def seconds_section(stored: dict[str, Any]) -> list[str]:
    """Effective samples per second, measured in turns, and the ratio to the SGLD of others."""
    lines = [
        "784 weights, 2,000 rows, four chains, one thread; each sampler at the best step size of",
        "its table below. All took turns of about a second in one process on a busy machine; the",
        "median of the turns, in CPU-seconds, and their range. This library is compiled",
        "(`compile=True`), as",
        "blackjax is; posteriors has no compiled form. The last columns say how many times the",
        "ESS per second of blackjax's and posteriors' SGLD it is.",
    ]
    for name, rates in stored["seconds"].items():
        rows = []
        best = {method: stored["cells"][f"{name} | {method}"]["best"] for method in rates}
        per_second = {m: best[m]["per_gradient"] * median(r) for m, r in rates.items()}
        for method in sorted(rates, key=lambda m: -per_second[m]):
            low, high = min(rates[method]), max(rates[method])
            ratios = " | ".join(
                f"{per_second[method] / per_second[rival]:.3g}" if rival in rates else "–"
                for rival in RIVALS
            )
            rows.append(
                f"| {_shown(method)} | {1000 * best[method]['per_gradient']:.3g} | "
                f"{median(rates[method]):,.0f} ({low:,.0f} to {high:,.0f}) | "
                f"{per_second[method]:.3g} | {ratios} |"
            )
        lines += ["", f"**{stored['targets'][name]['title']}**", ""]
        lines += ["| sampler | ESS per 1,000 gradients | gradients per second | ESS per second |"]
        lines[-1] += " × blackjax SGLD | × posteriors SGLD |"
        lines += ["|---|---|---|---|---|---|", *rows]
    return lines


def target_section(name: str, known: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """The table of one target, best per gradient first."""
    reference = stored["references"][known["family"]]
    rows = [
        (key.split(" | ")[1], cell)
        for key, cell in stored["cells"].items()
        if key.startswith(f"{name} |")
    ]
    rows.sort(key=lambda row: -(row[1]["best"] or {"per_gradient": 0})["per_gradient"])
    about = f"Condition of the Hessian {reference['condition']:.3g}, {known['dim']} numbers. "
    about += PRIORS.get(known["family"], f"{known['chains']} chains.")
    lines = [f"## {known['title']}", "", about, ""]
    lines += ["| sampler | ESS per 1,000 gradients | ESS per second | ESS | bias | step |"]
    lines += ["|---|---|---|---|---|---|"]
    return lines + [table_row(method, cell) for method, cell in rows]


def table_row(method: str, cell: dict[str, Any]) -> str:
    """A sampler's best run, or why there is none."""
    best = cell["best"]
    if best is None:
        errors = [row["error"] for row in cell["tried"] if "error" in row]
        unsure = any(row.get("bias_error", 0) > measure.UNSURE for row in cell["tried"])
        why = "too short to judge" if unsure else "biased at every step size tried"
        why = errors[0].split(":")[0] if len(errors) == len(cell["tried"]) else why
        return f"| {_shown(method)} | – | – | – | {why} | – |"
    bias = f"{best['bias']:.1%} ± {best['bias_error']:.1%}"
    numbers = f"{1000 * best['per_gradient']:.3g} | {best['per_second']:.3g} | {best['ess']:.0f}"
    return f"| {_shown(method)} | {numbers} | {bias} | {best['step']:.3g} |"


def _shown(method: str) -> str:
    """Samplers of this library are set in bold type."""
    return f"**{method}**" if method in ours.METHODS else method

"""The page docs/ess.md, from the results of benchmarks/ess.py."""

from __future__ import annotations

from statistics import median
from typing import Any

from effective import measure, others, ours, search, targets

INTRO = """\
# Effective samples per gradient

A chain's draws are correlated. The effective sample size (ESS) says how many independent draws
they are worth. The tables below give the ESS per gradient of the rules of this library, beside
blackjax and posteriors; the first one the ESS per second, where that was measured.

- ESS is that of the worst coordinate (of the Bayesian network: of the worst of 20 predictions),
  and of its mean or its square, whichever is lower: a chain that swings from side to side has
  good means and bad variances.
- A step size counts only if the variances it gives are right to 5 %, within two standard errors
  that are below 4 %, and if the run has at least 25 effective samples. The bias is the largest over
  ten groups of coordinates of similar variance, each the mean of its relative errors: that of one
  coordinate out of 784 would be chance.
- **Gaussians: no search.** Every rule but NUTS, MCLMC and PSGLD is linear there, so that ESS and
  bias have closed forms (`benchmarks/effective/linear.py`), for this library and the others alike.
  Each table has the best step size by them. One run of the sampler checks its variances: the last
  column says how many standard errors the worst coordinate is off (above 4.5 would be a fault).
  Errors are relative to the mean square. A first version took them absolute, which is skewed for
  slow coordinates: EMCMC `lm` at condition 1,000 was 5.2 off, and 2.1 with another seed.
- **Elsewhere every sampler has the same search and budget**: the first step size is the best one
  on the quadratic energy near a draw, in closed form; up to four pilots of a quarter of the length
  close in on the largest accurate step; a run of full length with another seed gives the numbers.
  So the best step size is found within about 30 %.
- Variances are exact (Gaussians), from quadrature (two modes), or those of a NUTS run of four
  chains of about 40,000 gradients each (network: 80,000).
- The network's posterior must have one mode in what it predicts, or no chain can be judged. Two
  first choices had several: 6 units on the Yacht table with noise 0.1, and 4 units on red wines
  with a prior variance of 1 (NUTS itself had 3 effective samples in each chain). With 0.1 NUTS
  mixes (R-hat 1.004). The choice was made before any number of the table below was seen.
- All chains start from draws of the target. NUTS and MCLMC start adapted. Nobody's warm-up,
  burn-in (a fifth of each run) and compilation is counted.
- The Gaussians have their axes along the coordinates. NUTS, MCLMC and PSGLD fit a scale to each
  coordinate, which suits them; the logistic regression is not of this kind.
- Friction of underdamped samplers is half of what is critical for the softest direction, for this
  library and the others alike. This and the grouping of coordinates were settled after first
  results had been seen: these tables are exploratory, with one seed. ESS is known to about 10 %
  where there are 1,000 of them or more, and less well where there are fewer.
- η of EMCMC is 4 over the largest curvature (1 over it for `exact` and `gibbs`).
- θ of EMCMC with a collapsed guide is SGLD, SGHMC, `lm` or `baoab`, number for number: see there.
- ESS of a run that is too short to judge is shown without its rate: near the number of chains it
  means that they have hardly moved.
- A missing row was not measured. † is from an earlier search: two or three step sizes, four chains,
  ESS of the mean alone.

Made by `benchmarks/ess.py`: `run` (effective samples per gradient, on any machine), `seconds` (on a
quiet one) and `render`, from `results/benchmarks/ess.json`.
"""
PRIORS = {
    "logistic": f"Prior variance {targets.PRIOR_VARIANCE:g}.",
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
    for name in sorted(stored["targets"], key=lambda n: NAMES.index(n) if n in NAMES else 99):
        known = stored["targets"][name]
        lines += ["", *target_section(name, known, stored)]
    return "\n".join(lines) + "\n"


def state(stored: dict[str, Any]) -> str:
    """What has been run of what was planned: every sampler on every target."""
    samplers = len(ours.METHODS) + len(others.METHODS)
    parts = []
    for name in NAMES:
        cells = [cell for key, cell in stored["cells"].items() if key.startswith(f"{name} |")]
        planned = samplers - (len(others.FULL_ENERGY) if "-64" in name else 0)
        new = sum(not is_earlier(cell) for cell in cells)
        earlier = f" (and {len(cells) - new} †)" if new < len(cells) else ""
        parts.append(f"{name} {new} of {planned}{earlier}")
    text = "; ".join(parts)
    return (
        f"**What has been run**, of all samplers: {text}. NUTS and MCLMC take no mini-batches. "
        "`run` goes on where it stopped."
    )


def is_earlier(cell: dict[str, Any]) -> bool:
    """Whether a cell is of an earlier search."""
    return bool(cell.get("protocol") != search.PROTOCOL)


def seconds_section(stored: dict[str, Any]) -> list[str]:
    """Effective samples per second, measured in turns, and the ratio to the SGLD of others."""
    lines = [
        "784 weights, 2,000 rows, four chains, one thread; ESS per gradient from the table of the",
        "target, gradients per second measured apart. All took turns of about a second in one",
        "process on a busy machine; the median of the turns, in CPU-seconds, and their range. This",
        "library is compiled (`compile=True`), as blackjax is; posteriors has no compiled form.",
        "The last columns say how many times the ESS per second of blackjax's and posteriors' SGLD",
        "it is.",
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
    about += PRIORS.get(known["family"], "").strip()
    about = f"{about.strip()} {lengths([cell for _, cell in rows])}"
    closed = any(cell.get("closed_form") for _, cell in rows)
    last = "run, standard errors off" if closed else "ESS by groups"
    lines = [f"## {known['title']}", "", about.strip(), ""]
    lines += [f"| sampler | ESS per 1,000 gradients | ESS | bias | step | {last} |"]
    lines += ["|---|---|---|---|---|---|"]
    return lines + [table_row(method, cell, closed) for method, cell in rows]


def lengths(cells: list[dict[str, Any]]) -> str:
    """How many chains and gradients the runs of a target have."""
    new = [cell for cell in cells if not is_earlier(cell)]
    if not new:
        return "Four chains."
    return f"{new[0]['chains']} chains of {new[0]['steps']:,} gradients."


def table_row(method: str, cell: dict[str, Any], closed: bool = False) -> str:
    """A sampler's best run, or why there is none."""
    best, name = cell["best"], _shown(method) + (" †" if is_earlier(cell) else "")
    if best is None:
        errors = [row["error"] for row in cell["tried"] if "error" in row]
        unsure = any(row.get("bias_error", 0) > measure.UNSURE for row in cell["tried"][-1:])
        why = "too short to judge" if unsure else "biased at every step size tried"
        why = errors[0].split(":")[0] if len(errors) == len(cell["tried"]) else why
        ran = [f"{row['ess']:.0f}" for row in cell["tried"][-1:] if unsure and "ess" in row]
        return f"| {name} | – | {''.join(ran) or '–'} | {why} | – | – |"
    per = f"{1000 * best['per_gradient']:.3g}"
    if cell.get("closed_form"):
        step, off = f"{best['step']:.3g}", f"{best['deviation']:.1f}"
        return f"| {name} | {per} | closed form | {abs(best['bias']):.1%} | {step} | {off} |"
    bias = f"{best['bias']:.1%} ± {best['bias_error']:.1%}"
    grouped = "–" if closed or "group_ess" not in best else f"{best['group_ess']:.0f}"
    return f"| {name} | {per} | {best['ess']:.0f} | {bias} | {best['step']:.3g} | {grouped} |"


def _shown(method: str) -> str:
    """Samplers of this library are set in bold type."""
    return f"**{method}**" if method in ours.METHODS else method

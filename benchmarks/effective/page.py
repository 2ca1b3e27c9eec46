"""The page docs/ess.md, from the results of benchmarks/ess.py."""

from __future__ import annotations

from typing import Any

from effective import others, ours, per_second, search, targets

INTRO = """\
# Effective samples per gradient and per second

A chain's draws are correlated. The effective sample size (ESS) says how many independent draws
they are worth. The tables below give the ESS per gradient and per second of the rules of this
library, beside blackjax and posteriors.

- ESS is that of the worst coordinate (of the Bayesian network: of the worst of 20 predictions),
  and of its mean or its square, whichever is lower: a chain that swings from side to side has
  good means and bad variances.
- **Bias.** A step size counts only if its variances are right to 5 %: the estimated bias of
  the run that is shown is 5 % or less, with a standard error of 2.5 % or less, and the run has at
  least 25 effective samples. So both sides of every ratio have at most 5 %. The bias is the largest
  over ten groups of coordinates of similar variance, each the mean of its relative errors: that of
  one coordinate out of 784 would be chance. (An earlier version allowed two standard errors more.)
- **Gaussians: no search.** Every rule but NUTS, MCLMC and PSGLD is linear there, so that ESS and
  bias have closed forms (`benchmarks/effective/linear.py`), for this library and the others alike.
  Each table has the best step size by them. One run of the sampler checks its variances: the last
  column says how many standard errors the worst coordinate is off (above 4.5 would be a fault).
  Errors are relative to the mean square. A first version took them absolute, which is skewed for
  slow coordinates: EMCMC `lm` at condition 1,000 was 5.2 off, and 2.1 with another seed.
- **Elsewhere every sampler has the same search and budget**: the first step size is the best one
  on the quadratic energy near a draw, in closed form; up to four pilots of a quarter of the length
  close in on the largest step whose bias is not shown to be above 5 %; a run of full length with
  another seed gives the numbers. If it is biased, the next has a step smaller by 1.3; if its error
  is too large to tell, it is four times as long (×4 in the tables). So the best step size is found
  within about 30 %.
- **Seconds** are CPU-seconds on one thread, all chains at once. The samplers of a target took turns
  of about half a second in one process, at the step sizes of the tables; gradients per second are
  the median of the turns, and their range. ESS per second is that times ESS per gradient. This
  library is compiled (`compile=True`), as blackjax is; posteriors has no compiled form. Compiling
  is not counted; by the clock it took, for one sampler on one target: {compiling}.
- Variances are exact (Gaussians), from quadrature (two modes), or those of a NUTS run of four
  chains of about 40,000 gradients each (network: 80,000), whose own error is given with the table
  and is part of every bias there; ± is the error of the run alone, without it.
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
- **Not in the tables**: Entropy-SGLD, whose outer step follows the mean of a nested chain of finite
  length: at no finite step sizes is there a target that it leaves invariant, so that a bias in
  variance cannot be told from a different target. SAM, bSAM and Entropy-SGD are optimizers: their
  iterates are draws of no stated target. Replicas (y ≥ 2), since they have another target than the
  rest, which is not to be compared in effective samples.
- ESS of a run that is too short to judge is shown without its rate: near the number of chains it
  means that they have hardly moved. Such samplers, and those that are biased or diverge at every
  step size tried, have no ESS, and were not timed.
- A missing row was not measured, – among the seconds was not timed. † is from an earlier search,
  which allowed two standard errors more than 5 % of bias.

Made by `benchmarks/ess.py`: `run` (effective samples per gradient, on any machine), `seconds` (on a
quiet one) and `render`, from `results/benchmarks/ess.json`.
"""
PRIORS = {
    "logistic": f"Prior variance {targets.PRIOR_VARIANCE:g}.",
    "network": f"Prior variance {targets.NETWORK_PRIOR:g}, noise {targets.NOISE:g}.",
}
BEST = [
    "## The best rule here against others",
    "",
    "The best rule here has most ESS per second, or per gradient where it was not timed; it is",
    "underdamped. So the fair rival is posteriors' BAOA, which is underdamped too: per gradient",
    "the two are about alike but for small batches, and what is gained is time, by compiling. SGLD",
    "is overdamped: the large ratios against it are those of momentum, and a user of another",
    "library can have them, too. On the small network, blackjax's gradients are the fastest, and",
    "its MCLMC has more ESS per second than any rule here.",
    "",
]
LIKE = [
    "## Like against like",
    "",
    "The same rule here and there, each at its own best step. `baoab` and posteriors' BAOA differ",
    "by the order of their parts; the others' SGHMC is discretised in another way than ours, and",
    "needs smaller steps for the same bias.",
    "",
]
RATIO_HEAD = [
    "| target | here | there | bias here | bias there | × ESS per gradient | × ESS per second |",
    "|---|---|---|---|---|---|---|",
]
NAMES = ("gaussian-10", "gaussian-1000", "two-modes", "logistic-full", "logistic-64")
NAMES += ("logistic-64-control", "network")


def page(stored: dict[str, Any]) -> str:
    """The whole page."""
    intro = INTRO.format(compiling=per_second.compile_times(stored))
    names = sorted(stored["targets"], key=lambda n: NAMES.index(n) if n in NAMES else 99)
    lines = [intro, state(stored), "", *ratios(names, stored)]
    for name in names:
        lines += ["", *target_section(name, stored["targets"][name], stored)]
    return "\n".join(lines) + "\n"


def ratios(names: list[str], stored: dict[str, Any]) -> list[str]:
    """The best rule here against the others, and like against like, on posteriors of data."""
    of_data = [name for name in names if stored["targets"][name]["family"] in PRIORS]
    sections: list[str] = []
    for words, rows_of in ((BEST, per_second.ratio_rows), (LIKE, per_second.like_rows)):
        rows = [row for name in of_data for row in rows_of(stored, name)]
        sections += [*words, *RATIO_HEAD, *rows, ""] if rows else []
    return sections[:-1]


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


def target_section(name: str, known: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """The table of one target, best per gradient first."""
    rows = [
        (key.split(" | ")[1], cell)
        for key, cell in stored["cells"].items()
        if key.startswith(f"{name} |")
    ]
    rows.sort(key=lambda row: -(row[1]["best"] or {"per_gradient": 0})["per_gradient"])
    closed = any(cell.get("closed_form") for _, cell in rows)
    last = "run, standard errors off" if closed else "ESS by groups"
    head = "| sampler | ESS per 1,000 gradients | gradients per second | ESS per second | ESS | "
    return [
        f"## {known['title']}",
        "",
        about(name, known, stored, [cell for _, cell in rows]),
        "",
        f"{head}bias | step | {last} |",
        "|---|---|---|---|---|---|---|---|",
        *(
            table_row(method, cell, per_second.columns(stored, name, method), closed)
            for method, cell in rows
        ),
    ]


def about(
    name: str, known: dict[str, Any], stored: dict[str, Any], cells: list[dict[str, Any]]
) -> str:
    """Condition, prior, the reference's error, lengths and timing of a target."""
    reference = stored["references"][known["family"]]
    parts = [
        f"Condition of the Hessian {per_second.rounded(reference['condition'])}, "
        f"{known['dim']} numbers."
    ]
    parts += [PRIORS[known["family"]]] if known["family"] in PRIORS else []
    if error := reference.get("variance_error"):
        parts.append(f"A variance of the reference errs by {error:.1%}, on average.")
    parts.append(lengths(cells))
    if name not in stored["seconds"]:
        parts.append("Not timed yet.")
    return " ".join(filter(None, parts))


def lengths(cells: list[dict[str, Any]]) -> str:
    """How many chains and gradients the runs of a target have."""
    new = [cell for cell in cells if not is_earlier(cell)]
    if not new:
        return ""
    return f"{new[0]['chains']} chains of {new[0]['steps']:,} gradients."


def table_row(method: str, cell: dict[str, Any], timing: str, closed: bool = False) -> str:
    """A sampler's best run, or why there is none."""
    best, name = cell["best"], _shown(method) + (" †" if is_earlier(cell) else "")
    if best is None:
        why, ess = reason(cell["tried"])
        return f"| {name} | – | – | – | {ess} | {why} | – | – |"
    per = per_second.rounded(1000 * best["per_gradient"])
    bias, step = per_second.shown_bias(best), f"{best['step']:.3g}"
    if cell.get("closed_form"):
        off = f"{best['deviation']:.1f}"
        return f"| {name} | {per} | {timing} | closed form | {bias} | {step} | {off} |"
    grouped = "–" if closed or "group_ess" not in best else f"{best['group_ess']:.0f}"
    longer = longer_mark(best, cell)
    return (
        f"| {name} | {per} | {timing} | {best['ess']:.0f}{longer} | {bias} | {step} | {grouped} |"
    )


def longer_mark(row: dict[str, Any], cell: dict[str, Any]) -> str:
    """How many times as long as the others this run was."""
    times = row.get("steps", 0) // cell["steps"] if "steps" in cell else 1
    return f" (×{times})" if times > 1 else ""


def reason(tried: list[dict[str, Any]]) -> tuple[str, str]:
    """Why no run of a sampler is shown, and the ESS of one that was too short."""
    results = [search.result_of(row) for row in tried]
    steps = [row["step"] for row in tried]
    where = f"at every step size tried ({min(steps):.2g} to {max(steps):.2g})"
    if all(result is None for result in results):
        return f"diverged {where}", "–"
    last = results[-1]
    if last is not None and not last.sure:
        return "too short to judge", f"{last.ess:.0f}"
    return f"biased {where}", "–"


def _shown(method: str) -> str:
    """Samplers of this library are set in bold type."""
    return f"**{method}**" if method in ours.METHODS else method

"""docs/tournament.md and its picture, made from results/tournament."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tournament import page_auto, page_extra, readme, table
from tournament.leagues import LEAGUES, tasks_of
from tournament.methods import METHODS
from tournament.scores import LOWER_IS_BETTER
from tournament.tasks import TASKS
from tournament.trials import near_ends

TITLES = {
    "own": "No trials: every method by its own recipe",
    "trials": "16 trials for every method",
}
RIVALS = ("SGD", "iterates", "SGHMC", "ensemble 4")
FOUR = ("ensemble 4", "iterates ×4", "SGHMC ×4", "EMCMC ×4")
# The guide alone is not EMCMC by its recipe, and Laplace is for classes only.
ONE_CHAIN = tuple(
    name
    for name, method in METHODS.items()
    if method.chains == 1 and name not in ("guide", "Laplace")
)
ALL = (*ONE_CHAIN, "ensemble 2", "ensemble 8", *FOUR)


def write(root: Path, folder: Path) -> None:
    """Write page and picture from what there is."""
    parts = ["# Tournament\n\nMade by `python benchmarks/recipes.py render`; rules: [comparison]"]
    parts[0] += "(comparison.md).\n"
    for league in LEAGUES:
        results = table.read(folder / league)
        if results:
            parts.append(f"## {TITLES[league]}\n")
            parts.append(f"![NLL of every method minus SGD's](pictures/tournament-{league}.png)\n")
            picture(results, root / "docs" / "pictures" / f"tournament-{league}.png")
            parts += [section(half, results) for half in ("confirmation", "development")]
            parts += [chosen(results)] if league == "trials" else []
    parts.append(not_run(folder))
    parts.append(page_extra.sections(folder, root / "docs" / "pictures"))
    parts.append(page_auto.section(folder, ALL))
    page = root / "docs" / "tournament.md"
    page.write_text("\n".join(part for part in parts if part))
    readme.place(page, root / "README.md")


def not_run(folder: Path) -> str:
    """The tasks of each league that have no results; empty if there are none."""
    lines = []
    for league, title in TITLES.items():
        results = table.read(folder / league)
        absent = [task.name for task in tasks_of(league, list(TASKS.values()))]
        absent = [name for name in absent if name not in results]
        if absent:
            lines.append(f"- {title}: {', '.join(absent)}.")
    return "## Not run\n\n" + "\n".join(lines) + "\n" if lines else ""


def section(half: str, results: table.Results) -> str:
    """What was seen on one half of the tasks, then its tables; empty if none was run."""
    part = {name: results[name] for name in results if TASKS[name].half == half}
    if not part:
        return ""
    text = [f"### {half.capitalize()} tasks: {', '.join(part)}\n", summary(part)]
    text.append(table.means(part, "nll"))
    ranks = [table.rank_table(part, "nll", methods) for methods in (ONE_CHAIN, ALL)]
    text.append(folded("Mean ranks in NLL: one chain, then all methods", ranks))
    for ours in ("EMCMC", "EMCMC ×4"):
        judged = [table.verdicts(part, ours, RIVALS, m) for m in ("nll", "ece", "auroc")]
        text.append(folded(f"{ours} against its rivals", judged))
    for measure in LOWER_IS_BETTER:
        both = [f"{measure}\n", table.means(part, measure)]
        both += ["after temperature scaling\n", table.means(part, f"{measure}-scaled")]
        text.append(folded(f"{measure} of every method", both))
    return "\n".join(part for part in text if part)


def chosen(results: table.Results) -> str:
    """The settings that the trials chose, and how many of them lie near the end of a range."""
    rows, near = [], []
    for name in [name for name in table.names(results) if name in METHODS]:
        method, cells = METHODS[name], []
        for methods in results.values():
            knobs = next(iter(methods.get(name, {}).values()), {}).get("knobs", {})
            values = [knobs[knob] for knob in method.open if knob in knobs]
            near += near_ends(method, knobs)
            cells.append(", ".join(f"{value:.2g}" for value in values) or "–")
        rows.append([name, ", ".join(method.open), *cells])
    head = ["method", "settings", *results]
    said = f"Within a tenth of the end of a range: {sum(near)} of {len(near)}.\n"
    return folded("Settings that the trials chose", [table.markdown(head, rows), said])


def folded(title: str, parts: Sequence[str]) -> str:
    """Tables behind a line that opens them, on the docs' pages and where GitHub shows them."""
    body = "\n".join(part for part in parts if part).strip()
    if not body:
        return ""
    return f"<details markdown><summary>{title}</summary>\n\n{body}\n\n</details>\n"


def summary(part: table.Results) -> str:
    """The targets of docs/comparison.md, in numbers."""
    against = [one for one in table.judged(part, "EMCMC", RIVALS, "nll") if one.rival == "SGD"]
    better = [one.task for one in against if one.verdict == "better"]
    worse = [one.task for one in against if one.verdict == "worse"]
    lines = [
        f"- EMCMC against SGD in NLL: decided better on {_named(better)}, decided worse on "
        f"{_named(worse)}, of {len(against)} tasks.",
        _rank_line(part, "EMCMC", ONE_CHAIN, "methods with one chain"),
        _rank_line(part, "EMCMC ×4", ALL, "all methods"),
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _named(tasks: Sequence[str]) -> str:
    return f"{len(tasks)} ({', '.join(tasks)})" if tasks else "none"


def _rank_line(part: table.Results, ours: str, methods: Sequence[str], words: str) -> str:
    tasks, ranks = table.ranked(part, "nll", methods)
    if ours not in ranks:
        return ""
    first, place = next(iter(ranks)), list(ranks).index(ours) + 1
    return (
        f"- {ours} among {words}: place {place} of {len(ranks)} by mean rank in NLL "
        f"({ranks[ours][0]:.1f}; first is {first} with {ranks[first][0]:.1f}; {tasks} tasks)."
    )


def picture(results: table.Results, file: Path) -> None:
    """Dots: NLL minus SGD's with its 95 % paired interval, a panel for each task."""
    import matplotlib.pyplot as plt

    from tournament.stats import paired

    columns, names = min(4, len(results)), [n for n in table.names(results) if n in ALL[1:]]
    rows = -(-len(results) // columns)
    size = (3.0 * columns, 0.6 + 3.2 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharey=True, squeeze=False)
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    for axis, (task, methods) in zip(axes.flat, results.items(), strict=False):
        base = table.values(methods.get("SGD", {}), "nll")
        for row, name in enumerate(reversed(names)):
            mine = table.values(methods.get(name, {}), "nll")
            seeds = sorted(set(mine) & set(base))
            if len(seeds) > 1:
                d = paired([mine[s] for s in seeds], [base[s] for s in seeds])
                colour = "tab:red" if name.startswith("EMCMC") else "tab:blue"
                axis.plot([d.low, d.high], [row, row], color=colour)
                axis.plot(d.mean, row, "o", color=colour, markersize=4)
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.set_xscale("symlog", linthresh=0.01)
        axis.set_xticks([-0.1, -0.01, 0, 0.01, 0.1], ["−.1", "−.01", "0", ".01", ".1"])
        axis.set_title(f"{task} ({TASKS[task].half})", fontsize=9)
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks(np.arange(len(names)), list(reversed(names)))
    figure.supxlabel("NLL minus SGD's (nats, linear within ±.01), 95 % paired interval", fontsize=9)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    plt.close(figure)

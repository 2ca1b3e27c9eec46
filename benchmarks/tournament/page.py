"""docs/tournament.md and its picture, made from results/tournament."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tournament import page_extra, table
from tournament.leagues import LEAGUES
from tournament.scores import LOWER_IS_BETTER
from tournament.tasks import TASKS

TITLES = {
    "own": "No trials: every method by its own recipe",
    "trials": "16 trials for every method",
}
RIVALS = ("SGD", "iterates", "SGHMC", "ensemble 4")
ONE_CHAIN = ("SGD", "EMA", "iterates", "SGHMC", "EMCMC")


def write(root: Path, results: Path) -> None:
    """Write page and picture from what there is."""
    parts = ["# Tournament\n\nMade by `python benchmarks/recipes.py render`; rules: [comparison]"]
    parts[0] += "(comparison.md).\n"
    for league in LEAGUES:
        found = table.read(results / league)
        if found:
            parts.append(f"## {TITLES[league]}\n")
            parts += [section(half, found) for half in ("confirmation", "development")]
            picture(found, root / "docs" / "pictures" / f"tournament-{league}.png")
            parts.append(f"![NLL of every method minus SGD's](pictures/tournament-{league}.png)\n")
    parts.append(page_extra.sections(results, root / "docs" / "pictures"))
    (root / "docs" / "tournament.md").write_text("\n".join(part for part in parts if part))


def section(half: str, results: table.Results) -> str:
    """Tables of one half of the tasks; empty if none was run."""
    part = {name: results[name] for name in results if TASKS[name].half == half}
    if not part:
        return ""
    text = [f"### {half.capitalize()} tasks\n"]
    for measure in LOWER_IS_BETTER:
        text.append(f"#### {measure}, mean ± standard error over seeds\n")
        text.append(table.means(part, measure))
        text.append(f"After temperature scaling:\n\n{table.means(part, measure + '-scaled')}")
    text.append(table.rank_table(part, "nll", ONE_CHAIN))
    text.append(table.rank_table(part, "nll", [n for n in table.names(part) if n != "AdamW start"]))
    for ours in ("EMCMC", "EMCMC ×4"):
        text += [table.verdicts(part, ours, RIVALS, m) for m in ("nll", "ece", "auroc")]
    return "\n".join(part for part in text if part)


def picture(results: table.Results, file: Path) -> None:
    """Dots: NLL minus SGD's with its 95 % paired interval, a panel for each task."""
    import matplotlib.pyplot as plt

    from tournament.stats import paired

    figure, axes = plt.subplots(
        1, len(results), figsize=(2.4 * len(results), 4), sharey=True, squeeze=False
    )
    names = [name for name in table.names(results) if name != "SGD"]
    for axis, (task, methods) in zip(axes[0], results.items(), strict=True):
        base = table.values(methods.get("SGD", {}), "nll")
        for row, name in enumerate(reversed(names)):
            mine = table.values(methods.get(name, {}), "nll")
            seeds = sorted(set(mine) & set(base))
            if len(seeds) > 1:
                d = paired([mine[s] for s in seeds], [base[s] for s in seeds])
                axis.plot([d.low, d.high], [row, row], color="tab:blue")
                axis.plot(d.mean, row, "o", color="tab:blue")
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.set_title(task, fontsize=9)
    axes[0][0].set_yticks(np.arange(len(names)), list(reversed(names)))
    figure.supxlabel("NLL minus SGD's (nats), 95 % paired interval")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    plt.close(figure)

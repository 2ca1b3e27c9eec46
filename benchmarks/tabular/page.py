"""The page of the benchmark: results/tables/*.json → docs/tabular.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tabular import sizes, targets
from tabular.comparison import (
    OURS,
    ROOT,
    UNTUNED,
    Comparison,
    Record,
    failed,
    pooled,
    records,
    splits,
    worse_than_nothing,
)

PAGE = ROOT / "docs" / "tabular.md"
PICTURE = ROOT / "docs" / "pictures" / "tables-ranks.png"
Read = Callable[[str, str], list[Record]]
SHOWN = {
    "classification": (("nll", "ece", "brier"), ("nll", "ece", "accuracy")),
    "regression": (("nll", "crps", "rmse"), ("nll", "rmse", "coverage", "width")),
}
NOTHING = {"classification": "the class frequencies", "regression": "the training mean"}


def summary(compared: Comparison, task: str) -> str:
    """One row for each method: mean ranks, p-values, medians over tables."""
    ranked, shown = SHOWN[task]
    p = ["", *(f"{value:.3f}" for value in compared.p_values("nll"))]
    wins = ["", *(f"{n}" for n in compared.wins("nll"))]
    rank = {score: compared.ranks(score) for score in ranked}
    values = {s: compared.means(s) for s in (*shown, "fit_seconds", "predict_seconds")}
    head = [*(f"rank by {s}" for s in ranked), "ours ahead in NLL", "p (Holm)"]
    head += [*(f"median {s}" for s in shown), "fit, CPU s", "predict, CPU s"]
    lines = [f"| method | {' | '.join(head)} |", "|" + "---|" * (len(head) + 1)]
    for i in np.argsort(rank["nll"], kind="stable"):
        cells = [f"{rank[s][i]:.2f}" for s in ranked] + [wins[i], p[i]]
        cells += [f"{np.median(v[:, i]):.3f}" for v in values.values()]
        lines.append(f"| {compared.names[i]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def each_table(compared: Comparison) -> str:
    """One row for each table: the NLL of each method, the best in bold."""
    names = compared.names
    lines = [f"| table | rows | splits | {' | '.join(names)} |", "|" + "---|" * (len(names) + 3)]
    for r, row in zip(compared.tables, compared.means("nll"), strict=True):
        best = row.argmin()
        cells = [f"**{v:.3f}**" if i == best else f"{v:.3f}" for i, v in enumerate(row)]
        count = len(splits(r, names))
        lines.append(f"| {r['table']} | {r['rows']} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def against_nothing(tables: Sequence[Record], task: str) -> str:
    """One sentence on the tables that are worse than no model at all."""
    worse = worse_than_nothing(tables)
    named = ", ".join(f"{name} ({gap:+.3f})" for name, gap in worse.items()) or "none"
    return f"Worse than {NOTHING[task]} by more than 1 % and two standard errors: {named}."


def coverage(tables: Sequence[Record]) -> str:
    """Coverage of 95 % intervals of ours, pooled over test rows, and by thirds of the mean."""
    thirds = ", ".join(f"{pooled(tables, f'coverage_{part}'):.3f}" for part in "abc")
    return (
        f"Coverage of the 95 % intervals of `EntropyMCMCRegressor`, pooled over test rows: "
        f"**{pooled(tables, 'coverage'):.3f}**; by thirds of the predicted mean {thirds}."
    )


def ahead(compared: Comparison) -> str:
    """Every method that is better than ours by mean rank or on a table, by name."""
    names, values = compared.names, compared.means("nll")
    found = compared.ranks("nll")
    by_rank = [names[i] for i in np.argsort(found) if found[i] < found[0]]
    counts = np.bincount(values.argmin(axis=1), minlength=len(names))
    best = ", ".join(f"{names[i]} on {counts[i]}" for i in np.argsort(-counts) if counts[i])
    first = f"Ahead of ours by mean rank in NLL: {', '.join(by_rank) or 'none'}."
    return f"{first} Best on a table: {best}."


def part(tables: Sequence[Record], task: str, names: Sequence[str], least: int, title: str) -> str:
    """Summary and tables of one comparison, or nothing where it was not run."""
    compared = Comparison.of(tables, names, least)
    if not compared:
        return f"### {title}\n\nNot run yet."
    about = f"{len(compared.tables)} tables, {compared.split_counts()}."
    nan = [f"{name} on {', '.join(found)}" for name in names if (found := failed(tables, name))]
    about += f" Left out, for predictions were NaN: {'; '.join(nan)}." if nan else ""
    parts = [f"### {title}", about, summary(compared, task), ahead(compared)]
    if tuple(names) == UNTUNED[task]:
        parts.append(against_nothing(compared.tables, task))
        parts += [coverage(compared.tables)] if task == "regression" else []
    return "\n\n".join([*parts, each_table(compared)])


def fewer(tables: Sequence[Record], task: str) -> list[Record]:
    """Confirmation tables with fewer splits than count."""
    return [r for r in tables if len(splits(r, UNTUNED[task])) < targets.SPLITS]


def section(half: str, tables: dict[str, list[Record]]) -> str:
    """What one half of the tables says."""
    least = targets.SPLITS if half == "confirmation" else 1
    parts = [f"## The {half} half"]
    for task, own in tables.items():
        name = task.capitalize()
        parts.append(part(own, task, UNTUNED[task], least, f"{name}, without tuning"))
        if half == "development":
            continue
        few = fewer(own, task)
        if Comparison.of(few, UNTUNED[task]):
            parts.append(part(few, task, UNTUNED[task], 1, f"{name}: tables with fewer splits"))
        gp = (*UNTUNED[task], targets.PROCESS)
        parts.append(part(own, task, gp, 1, f"{name}: with a Gaussian process, small tables"))
        tuned = targets.tuned_names(task)
        parts.append(part(own, task, tuned, 1, f"{name}: rivals tuned by 20 trials"))
        for rival in targets.SEEN:
            title = f"{name}: against `{rival}` (sklearn-contrib-bde)"
            parts.append(part(own, task, (OURS, rival), 1, title))
    return "\n\n".join(parts)


def target_table(found: Sequence[targets.Target]) -> str:
    """One row for each target."""
    lines = ["| target | measured | |", "|---|---|---|"]
    lines += [f"| {t.asked} | {t.found} | {t.verdict} |" for t in found]
    return "\n".join(lines)


def render(read: Read = records, known: Path = targets.KNOWN) -> str:
    """The page."""
    halves = {
        half: {task: read(task, half) for task in UNTUNED}
        for half in ("confirmation", "development")
    }
    found = targets.confirmation_targets(*halves["confirmation"].values())
    table = target_table([*found, *targets.known_targets(known)])
    counted = {
        task: Comparison.of(own, UNTUNED[task], targets.SPLITS)
        for task, own in halves["confirmation"].items()
    }
    sections = [section(half, tables) for half, tables in halves.items()]
    parts = [HEAD, "## Targets", table, sizes.section(counted), *sections]
    return "\n\n".join(part for part in parts if part) + "\n"


HEAD = """# Tabular data: the estimators against others

Made by `benchmarks/tables_page.py` from `results/tables/` and `results/tables-known.json`: do not
edit. How the estimators treat a table is on [another page](tables.md).

Public tables that come with PyPI packages (`benchmarks/tabular/catalogue.py` has the list and the
licences). A hash of the name divides them into a development half, on which settings were chosen,
and a confirmation half, which nothing was tuned on: only it is evidence. Every method has its
defaults unless it is called tuned, on random splits with a quarter for testing. Ours and boosting
take categories and missing values as they are; all others get one-hot categories, imputed and
scaled columns. Regressors that give a mean only get Gaussian noise of the size of their errors on
held-out rows. Tuned rivals are the three that ranked best on the development half. Scores are means
over splits; NLL, RMSE, CRPS and width of regressions are in units of the standard deviation of y.
The p-values are those of Wilcoxon's test over tables against ours, after Holm. Predictions of a
regression are means, intervals and densities together.

**Splits.** Untuned methods are compared on 10 splits of each table. Dearer ones have fewer: `bde`
one, tuned rivals one, and up to three where a table has at most 1,600 rows. A comparison uses the
splits that all of its methods share and says how many they are.

**`bde`.** Five and then six classification tables had been run, and p-values looked at, before a
plan was fixed: both settings on all 27 confirmation tables of up to 1,000 rows, one split, decided
once, when all are there. The tables seen before are among the 27. So a target counts as met only if
the other tables decide it alone, too.

**Time.** CPU-seconds of the comparisons were measured on one thread of a machine that was busy with
other work, which inflates those of all methods. The costs among the targets were measured with
other work stopped, those of a fit over an MLP's while another process ran on the other core: each
is the median of three, in turns with the MLP's. Speed was improved after the comparisons were
begun: fits give the same bits, and predictions the same within rounding.

![Mean ranks of the untuned methods on the confirmation tables](pictures/tables-ranks.png)

The grey band is Nemenyi's critical distance from ours at 5 %: methods inside it are not decided by
mean rank alone."""

"""The page: one file of HTML with its style, its few lines of script and its images inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from entropy_mcmc.file_names import shown_name
from entropy_mcmc.report.html import Section, environment
from entropy_mcmc.report.labels import GLOSSARY, METRICS, method_name
from entropy_mcmc.report.run_comparison import comparison
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.sections import sections

COMPARISON = "Comparison"


@dataclass(frozen=True)
class Panel:
    """A run of the page, or the comparison of all."""

    name: str
    key: str
    sections: list[Section]

    @property
    def heading(self) -> str:
        """What stands above it."""
        return self.name if self.name == COMPARISON else f"Run {self.name}"


def page(runs: Sequence[RunData]) -> str:
    """The whole document."""
    panels = [Panel(run.name, f"r{i}", sections(run)) for i, run in enumerate(runs)]
    if len(runs) > 1:
        panels.insert(0, Panel(COMPARISON, "cmp", comparison(runs)))
    text = (
        environment()
        .get_template("page.html")
        .render(
            title="Report: " + ", ".join(run.name for run in runs),
            methods=_listed(method_name(run.method) for run in runs),
            data=" and ".join(
                dict.fromkeys(shown_name(run.record.config.data.name) for run in runs)
            ),
            panels=panels,
            glossary=_glossary(runs),
            folders=", ".join(run.name for run in runs),
            versions=_listed(str(run.record.machine.get("entropy_mcmc", "?")) for run in runs),
            style=_asset("style.css"),
            script=_asset("page.js"),
        )
    )
    return f"{text}\n"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _asset(name: str) -> str:
    return (files("entropy_mcmc.report") / name).read_text(encoding="utf-8")


def _glossary(runs: Sequence[RunData]) -> list[tuple[str, str]]:
    """Words and their meanings, as far as the runs need them."""
    kinds = {run.likelihood for run in runs}
    hidden = set()
    if "classification" not in kinds:
        hidden = {"accuracy", "ece", "brier", "misclassification_auroc", "auroc", "fpr95", "aupr"}
    if "regression" not in kinds:
        hidden = {"rmse", "coverage"}
    entries = [(m[0], m[2]) for name, m in METRICS.items() if name not in hidden]
    return [(word, meaning[0].upper() + meaning[1:]) for word, meaning in [*entries, *GLOSSARY]]

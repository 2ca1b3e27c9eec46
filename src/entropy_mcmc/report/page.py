"""The page: one file of HTML with its style, its few lines of script and its images inside."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from entropy_mcmc.report.collect import RunData
from entropy_mcmc.report.compare import comparison
from entropy_mcmc.report.html import Section, safe
from entropy_mcmc.report.sections import sections
from entropy_mcmc.report.words import GLOSSARY, METRICS, method_name

COMPARISON = "Comparison"


def page(runs: Sequence[RunData]) -> str:
    """The whole document."""
    title = "Report: " + ", ".join(run.name for run in runs)
    panels = [(run.name, f"r{i}", sections(run)) for i, run in enumerate(runs)]
    if len(runs) > 1:
        panels.insert(0, (COMPARISON, "cmp", comparison(runs)))
    body = _tabs(panels) + "".join(_panel(*one, alone=len(panels) == 1) for one in panels)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
        f'<link rel="icon" href="data:,"><title>{safe(title)}</title>'
        f"<style>{_asset('style.css')}</style></head><body>"
        '<a class="skip" href="#main">Skip to the content</a>'
        f'{_header(runs)}<main id="main">{body}{_glossary(runs)}</main>{_footer(runs)}'
        '<div id="tip" role="status" hidden></div>'
        f"<script>{_asset('page.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return (files("entropy_mcmc.report") / name).read_text(encoding="utf-8")


def _header(runs: Sequence[RunData]) -> str:
    what = " and ".join(dict.fromkeys(run.record.config.data.name for run in runs))
    how = ", ".join(dict.fromkeys(method_name(run.method) for run in runs))
    return (
        '<header class="top"><div><p class="kicker">entropy-mcmc report</p>'
        f"<h1>{safe(how)} <span>on {safe(what)}</span></h1></div>"
        '<button type="button" id="theme" hidden>Dark</button></header>'
    )


def _tabs(panels: Sequence[tuple[str, str, list[Section]]]) -> str:
    if len(panels) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" role="tab" id="tab-{key}" aria-controls="panel-{key}" '
        f'aria-selected="{"false" if i else "true"}"{" tabindex=-1" if i else ""}>{safe(name)}'
        "</button>"
        for i, (name, key, _) in enumerate(panels)
    )
    return f'<div class="tabs" role="tablist" aria-label="Comparison and runs">{buttons}</div>'


def _panel(name: str, key: str, parts: list[Section], *, alone: bool) -> str:
    links = "".join(f'<li><a href="#{key}-{p.key}">{safe(p.title)}</a></li>' for p in parts)
    nav = f'<nav aria-label="Sections of {safe(name)}"><ul>{links}</ul></nav>'
    content = "".join(part.html(key) for part in parts)
    heading = name if name == COMPARISON else f"Run {name}"
    role = "" if alone else f' role="tabpanel" aria-labelledby="tab-{key}" tabindex="0"'
    return (
        f'<div class="panel" id="panel-{key}"{role}><h2>{safe(heading)}</h2>'
        f'<div class="columns">{nav}<div class="content">{content}</div></div></div>'
    )


def _glossary(runs: Sequence[RunData]) -> str:
    kinds = {run.likelihood for run in runs}
    hidden = set()
    if "classification" not in kinds:
        hidden = {"accuracy", "ece", "brier", "misclassification_auroc", "auroc", "fpr95", "aupr"}
    if "regression" not in kinds:
        hidden = {"rmse", "coverage"}
    entries = [(m[0], m[2]) for name, m in METRICS.items() if name not in hidden]
    listed = "".join(
        f"<div><dt>{safe(word)}</dt><dd>{safe(meaning[0].upper() + meaning[1:])}</dd></div>"
        for word, meaning in [*entries, *GLOSSARY]
    )
    return (
        '<section class="glossary" id="glossary" aria-labelledby="glossary-h">'
        f'<h2 id="glossary-h">What the words mean</h2><dl>{listed}</dl></section>'
    )


def _footer(runs: Sequence[RunData]) -> str:
    version = ", ".join(
        dict.fromkeys(str(run.record.machine.get("entropy_mcmc", "?")) for run in runs)
    )
    folders = ", ".join(str(run.folder) for run in runs)
    return (
        f"<footer><p>Made by <code>emcmc report</code> from {safe(folders)} (runs of entropy-mcmc "
        f"{safe(version)}). The page needs no network and holds all its numbers.</p></footer>"
    )

"""What was run: settings in words, versions, and a command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from entropy_mcmc.file_names import shown_name
from entropy_mcmc.report.figures.svg import number
from entropy_mcmc.report.html import Section, Table, details, piece
from entropy_mcmc.report.labels import SETTINGS, method_name
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.run.config import RunConfig, flatten, to_dict

SHOWN: dict[str, Callable[[Any], str]] = {"method": method_name, "data.name": shown_name}
USUAL = (("replicas", 1),)  # what goes without saying
HIDDEN = ("run_dir", "output.", "compute.timeout")


def written(value: Any) -> str:
    """An option's value for people.

    >>> written(0.000123456), written(None), written(["a", "b"])
    ('0.000123', '–', 'a, b')
    """
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def setup_section(run: RunData) -> Section:
    """The tables of one run."""
    flat = flatten(to_dict(run.record.config))
    rows = [
        (words, SHOWN.get(name, written)(flat[name]), meaning)
        for name, words, meaning in SETTINGS
        if flat.get(name) is not None and (name, flat[name]) not in USUAL
    ]
    problem = run.record.problem
    rows.append(("Parameters", f"{problem.get('parameters', 0):,}", "numbers that are sampled"))
    rows.append(("Training rows N", f"{problem.get('rows', 0):,}", "the size of the data"))
    machine = [[name, written(value)] for name, value in run.record.machine.items()]
    everything = [[name, written(value)] for name, value in flat.items() if name != "run_dir"]
    return Section(
        "setup",
        "What was run",
        "",
        [
            piece("definitions", "settings", rows),
            details(
                "Command that repeats this run",
                "The same machine, versions and threads give the same numbers bit for bit.",
                Markup('<pre tabindex="0"><code>{}</code></pre>').format(command(run)),
            ),
            details("Versions and machine", Table("Machine", ["what", "value"], machine)),
            details("All options", Table("All options", ["option", "value"], everything)),
        ],
    )


def command(run: RunData) -> str:
    """`emcmc sample` with every option that differs from its default."""
    default, mine = flatten(to_dict(RunConfig())), flatten(to_dict(run.record.config))
    words = ["emcmc sample"]
    for name, value in mine.items():
        if name.startswith(HIDDEN) or value is None or value == default.get(name):
            continue
        top, _, rest = name.partition(".options.")
        key, shown = (f"{top}.options", {rest: value}) if rest else (name, value)
        words.append(f"--{key} {shlex.quote(_yaml(shown))}")
    return " \\\n  ".join([*words, "--run_dir NEW_FOLDER"])


def _yaml(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def differences_table(runs: Sequence[RunData]) -> Table | None:
    """Options that are not the same in all runs."""
    flats = [flatten(to_dict(run.record.config)) for run in runs]
    names = [n for n in dict.fromkeys(k for f in flats for k in f) if not n.startswith(HIDDEN)]
    differing = [n for n in names if len({str(f.get(n)) for f in flats}) > 1]
    if not differing:
        return None
    rows = [[n, *(written(f.get(n)) for f in flats)] for n in differing]
    return Table("Settings that differ", ["option", *(run.name for run in runs)], rows)

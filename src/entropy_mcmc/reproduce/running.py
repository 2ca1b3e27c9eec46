"""Make an item: its jobs, then its table, figures and verdicts, on screen and on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entropy_mcmc.posterior.files import atomic
from entropy_mcmc.reproduce import search
from entropy_mcmc.reproduce.items import MODULES, Outcome, item, results
from entropy_mcmc.reproduce.jobs import Job, Place, ordered, run_all
from entropy_mcmc.reproduce.methods import ENTRIES
from entropy_mcmc.reproduce.scale import scale
from entropy_mcmc.reproduce.text import markdown, show


def reproduce(
    name: str,
    size: str,
    *,
    results: Path,
    work: Path,
    data: str | None = None,
    show_only: bool = False,
) -> None:
    """Make one item, `search` or `all` at a scale; with `show_only` from what is there."""
    place = Place(results / size, work / size, data)
    place.results.mkdir(parents=True, exist_ok=True)
    if name == "search":
        _search(size, place)
        return
    for each in MODULES if name == "all" else [name]:
        _make(each, size, place, show_only)


def _search(size: str, place: Place) -> None:
    chosen = scale(size)
    if not chosen.trials:
        print(f"the scale {size} has no search: its numbers are fixed")
        return
    run_all(search.jobs(chosen, ENTRIES), place, _say)
    for method, found in search.choose(chosen, place).items():
        print(f"{method}: validation NLL {found['validation_nll']:.4f} at {found['numbers']}")


def _make(name: str, size: str, place: Place, show_only: bool) -> None:
    found = item(name)
    reason = found.unavailable(size, place)
    if reason is not None:
        print(f"{name}: not run here: {reason}")
        return
    jobs = found.jobs(size, place)
    if not show_only:
        run_all(jobs, place, _say)
    outcome = found.show(results(jobs, place), size)
    write(name, outcome, place, provenance(jobs, place))
    print(show(f"{name}: {found.title} ({found.where}), scale {size}", outcome))


def provenance(jobs: Sequence[Job], place: Place) -> dict[str, Any]:
    """How many runs an outcome is made of, their time, and the versions that made them."""
    files = [place.result_file(job.name) for job in ordered(jobs)]
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]
    versions: dict[str, set[str]] = {}
    for each in stored:
        for name, version in each["versions"].items():
            versions.setdefault(name, set()).add(version)
    return {
        "runs": len(stored),
        "wanted_runs": len(files),
        "seconds": round(sum(each["seconds"] for each in stored), 1),
        "versions": {name: sorted(found) for name, found in sorted(versions.items())},
    }


def write(name: str, outcome: Outcome, place: Place, made_of: Mapping[str, Any]) -> None:
    """Keep the outcome as JSON, markdown and pictures, with its `provenance`."""
    folder = place.results / "items"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "columns": outcome.columns,
        "rows": outcome.rows,
        "verdicts": [vars(verdict) for verdict in outcome.verdicts],
        "notes": outcome.notes,
        "figures": list(outcome.figures),
        **made_of,
    }
    with atomic(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    with atomic(folder / f"{name}.md") as temporary:
        temporary.write_text(markdown(outcome) + "\n", "utf-8")
    for figure, draw in outcome.figures.items():
        draw(folder / f"{figure}.png")


def _say(text: str) -> None:
    print(text, flush=True)

"""Make an item: its jobs, then its table, figures and verdicts, on screen and on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc_reproduction.items import MODULES, Outcome, Verdict, item, results
from entropy_mcmc_reproduction.jobs import Job, Place, diverged, ordered, pending, read, run_all
from entropy_mcmc_reproduction.stored_runs import is_made
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, markdown, show


def reproduce(
    names: Sequence[str],
    size: str,
    *,
    results: Path,
    work: Path,
    data: str | None = None,
    show_only: bool = False,
    stored_only: bool = False,
) -> None:
    """Make items, or `all`, at a scale; with `show_only` from what is there.

    With `stored_only` nothing is trained: runs that the tournament's store has are measured, and
    the items are shown with them.

    The jobs of all items are one list, so that a process that finds the rest of an item taken goes
    on with the next.
    """
    place = Place(results / size, work / size, data)
    place.results.mkdir(parents=True, exist_ok=True)
    wanted = MODULES if "all" in names else ()
    each = dict.fromkeys([n for n in names if n != "all"] + list(wanted))
    waiting = {name: item(name).jobs(size, place) for name in each if _can_run(name, size, place)}

    def show_finished() -> None:
        for name in [n for n, jobs in waiting.items() if show_only or not pending(jobs, place)]:
            _show(name, size, place, waiting.pop(name))

    if stored_only:
        made = [job for jobs in waiting.values() for job in jobs if is_made(job, place)]
        run_all(made, place, _say)
        show_only = True
    show_finished()
    run_all([job for jobs in waiting.values() for job in jobs], place, _say, show_finished)
    show_finished()


def _can_run(name: str, size: str, place: Place) -> bool:
    reason = item(name).unavailable(size, place)
    if reason is not None:
        print(f"{name}: not run here: {reason}")
    return reason is None


def _show(name: str, size: str, place: Place, jobs: list[Job]) -> None:
    found = item(name)
    made_of = provenance(jobs, place)
    outcome = found.show(results(jobs, place), size)
    outcome = _without(_diverged(jobs, place), outcome, [job.name for job in jobs])
    outcome = _interim(outcome, made_of["runs"], made_of["wanted_runs"])
    write(name, outcome, place, made_of)
    print(show(f"{name}: {found.title} ({found.where}), scale {size}", outcome))


def _diverged(jobs: Sequence[Job], place: Place) -> list[str]:
    """Names of the jobs of an item that diverged; a trial that did has only lost."""
    found = {job.name: read(place, job) for job in jobs}
    return [name for name, result in found.items() if result and diverged(result)]


def _without(lost: Sequence[str], outcome: Outcome, jobs: Iterable[str]) -> Outcome:
    """An outcome that names its lost runs.

    The seeds that are left were lucky: they decide nothing for the party that lost runs, but what
    they decide against it stands. A verdict whose parties are not `jobs` may need all of them.
    """
    if not lost:
        return outcome
    note = (
        f"Diverged, and left out above: {', '.join(lost)}. What needs them is not decided, unless "
        "the method that diverged is behind in its other runs too."
    )
    known, gaps = set(map(_label, jobs)), set(map(_label, lost))
    verdicts = [
        verdict if _stands(verdict, known, gaps) else replace(verdict, decision=UNDECIDED)
        for verdict in outcome.verdicts
    ]
    return replace(outcome, verdicts=verdicts, notes=[*outcome.notes, note])


def _stands(verdict: Verdict, known: set[str], gaps: set[str]) -> bool:
    """Whether a verdict holds although the labels in `gaps` have lost runs."""
    parties = set(verdict.parties)
    if not parties or not parties <= known:
        return False
    if not parties & gaps:
        return True
    # Within the margin the claim may be that the two are alike, which the lost run denies.
    if verdict.effect is None or verdict.small or len(verdict.parties) != 2:
        return False
    ours, theirs = verdict.parties
    behind = {HOLDS: theirs, FAILS: ours}.get(verdict.decision)
    _, low, high = verdict.effect
    return parties & gaps == {behind} and (low > 0 if verdict.decision == HOLDS else high < 0)


def _label(job: str) -> str:
    """The name of a job without its seed."""
    return job.rpartition("-")[0]


def _interim(outcome: Outcome, runs: int, wanted: int) -> Outcome:
    """An outcome that says so where runs are missing."""
    if runs == wanted:
        return outcome
    note = f"Interim: {runs} of {wanted} runs. What is decided now can change with the rest."
    return replace(outcome, notes=[*outcome.notes, note])


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
        "seconds": round(sum(spent(stored).values()), 1),
        "versions": {name: sorted(found) for name, found in sorted(versions.items())},
    }


def spent(stored: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of the runs behind stored jobs; jobs that read off the same runs count once.

    >>> shared = {"result": {"runs": ["a", "b"], "seconds": 9.0}, "job": "x-0", "seconds": 0.1}
    >>> spent([shared, {**shared, "job": "y-0"}, {"result": {}, "job": "z", "seconds": 2.0}])
    {'a b': 9.0, 'z': 2.0}
    """
    return {
        " ".join(each["result"].get("runs", [])) or each["job"]: each["result"].get(
            "seconds", each["seconds"]
        )
        for each in stored
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

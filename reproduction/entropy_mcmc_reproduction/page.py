"""`docs/reproduction.md`, made from the committed outcomes of all items: never typed by hand."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc_reproduction import effects
from entropy_mcmc_reproduction.items import MODULES, Draw, Item, Outcome, Verdict, item
from entropy_mcmc_reproduction.jobs import Place
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, UNDECIDED, markdown

PICTURES = Path("pictures/reproduction")

_HEAD = """\
# Reproduction: what the paper claims, and what was measured

Made by `emcmc reproduce --page docs/reproduction.md` from `results/{size}/`: do not edit. All items
follow the [protocol](protocol.md), which was written before their runs."""

_READING = """\
A dot is the mean gain of the claim's first method over its second, the line its 95 % interval over
seeds; within the grey margin (0.01 nats) two methods are alike. Decided are claims whose p value is
below 0.05 after Holm's correction within the item. "Interim" in an item: runs are missing."""

_COMMANDS = """\
## Commands

```sh
pip install -c constraints.txt -e . -e reproduction   # in a clone; `make` does it in .venv
export EMCMC_DATA=...                    # folder of the data sets
export EMCMC_RUNS=...                    # store of runs, shared with the tournament
emcmc reproduce --list                   # the items
emcmc reproduce regression --scale {size}   # interrupted, the same command goes on
emcmc reproduce cifar --stored           # what the tournament has of it; trains nothing
emcmc reproduce all --scale {size}
emcmc reproduce cifar cifar100 --scale paper   # the paper's own size, for GPUs
```

The experiments are a package beside the library, in `reproduction/`: they come with a clone, not
with the wheel."""

DECISIONS = (HOLDS, ALIKE, FAILS, UNDECIDED)


def write(path: Path, results: Path, size: str) -> None:
    """Write the page, and the figures beside it; figures that it no longer shows go."""
    found = outcomes(results, size)
    effects.draw_all(found, results / size / "items")
    text = page(results, size)
    folder = path.parent / PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    shown = {f"{name}.png" for name in figures(found)}
    for name in shown:
        shutil.copyfile(results / size / "items" / name, folder / name)
    for old in folder.glob("*.png"):
        if old.name not in shown:
            old.unlink()
    with atomic(path) as temporary:
        temporary.write_text(text, "utf-8")


def figures(found: dict[str, dict[str, Any]]) -> set[str]:
    """Names of all figures of the page."""
    own = {name for each in found.values() for name in each["figures"]}
    return own | ({effects.FIGURE} if effects.rows(found) else set())


def page(results: Path, size: str) -> str:
    """The whole page."""
    found = outcomes(results, size)
    items = {name: item(name) for name in MODULES}
    place = Place(results / size, Path(), str(results))
    parts = [_HEAD.format(size=size), _summary(found), _COMMANDS.format(size=size)]
    parts += [_overview(items, found)]
    parts += [_section(name, items[name], found.get(name), size, place) for name in MODULES]
    parts += [_total(results / size / "runs"), _versions(found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(found: dict[str, dict[str, Any]]) -> str:
    """What was decided, claim by claim, and its picture."""
    lines = []
    for name, outcome in found.items():
        for verdict in outcome["verdicts"]:
            if verdict.get("measure", "nll") in ("nll", "train_nll", ""):
                said = f"**{verdict['decision']}**, {verdict['measured']}"
                paper = f" Paper: {verdict['paper']}." if verdict.get("paper") else ""
                lines.append(f"- [{name}](#{name}): {verdict['claim']}: {said}.{paper}")
    if not lines:
        return ""
    picture = ""
    if effects.rows(found):
        picture = f"![Effects with intervals]({PICTURES.as_posix()}/{effects.FIGURE}.png)\n\n"
        picture += f"{_READING}\n\n"
    head = "## What was decided in NLL\n\n"
    return f"{head}{picture}{_folded(chr(10).join(lines), 'Every claim in words')}"


def outcomes(results: Path, size: str) -> dict[str, dict[str, Any]]:
    """Outcomes that the items wrote, in the order of the list."""
    found = {}
    for name in MODULES:
        path = results / size / "items" / f"{name}.json"
        if not path.exists():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found[name] = {"figures": [], **{key: content[key] for key in _KEYS}, **content}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is damaged ({error}); make it again with `emcmc reproduce {name} "
                f"--scale {size} --show`"
            ) from error
    return {name: content for name, content in found.items() if content["rows"]}


_KEYS = ("columns", "rows", "verdicts", "notes")


def _total(folder: Path) -> str:
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("*.json")]
    if not stored:
        return ""
    hours = sum(each["seconds"] for each in stored) / 3600
    return (
        f"All {len(stored)} runs, searches among them, took {hours:.1f} hours of one thread; "
        "of a run that was interrupted, the time since it went on is counted, and runs that the "
        "tournament's store had already are not."
    )


def _overview(items: dict[str, Item], found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "## All verdicts",
        "",
        f"| item | in the paper | {' | '.join(DECISIONS)} |",
        "|---|---|" + "---|" * len(DECISIONS),
    ]
    for name in items:
        if name in found:
            counts = Counter(verdict["decision"] for verdict in found[name]["verdicts"])
            cells = [str(counts[decision]) for decision in DECISIONS]
        else:
            cells = ["not run", *[""] * (len(DECISIONS) - 1)]
        lines.append(f"| [{name}](#{name}) | {items[name].where} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _section(name: str, each: Item, found: dict[str, Any] | None, size: str, place: Place) -> str:
    head = f"## {name}\n\n{_sentence(each.title)} ({each.where})."
    if found is None:
        reason = each.unavailable(size, place)
        return f"{head}\n\nNot run here: {reason or 'no result has been committed yet'}."
    verdicts = [Verdict(**verdict) for verdict in found["verdicts"]]
    figures: dict[str, Draw] = {figure: _nothing for figure in found["figures"]}
    text = markdown(Outcome(found["columns"], found["rows"], verdicts, figures, found["notes"]))
    for figure in figures:
        link = f"![{each.title}]({PICTURES.as_posix()}/{figure}.png)"
        text = text.replace(f"![{figure}]({figure}.png)", link)
    made = f"Made by `emcmc reproduce {name} --scale {size}`{_cost(found)}."
    return f"{head} {made}\n\n{_folded(text)}"


def _folded(text: str, title: str = "Table, figures and verdicts") -> str:
    """Behind a line that opens it."""
    indented = "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    return f'??? note "{title}"\n\n{indented}'


def _nothing(path: Path) -> None:
    """The figures have been drawn already."""


def _sentence(title: str) -> str:
    return title[:1].upper() + title[1:]


def _cost(found: dict[str, Any]) -> str:
    if not found.get("runs"):
        return ""
    done, wanted = found["runs"], found["wanted_runs"]
    total = str(done) if done == wanted else f"{done} of {wanted}"
    runs = f"{total} run{'' if wanted == 1 else 's'}"
    return f" ({runs}, {found['seconds'] / 60:.1f} minutes of one thread; items may share runs)"


def _versions(found: dict[str, dict[str, Any]]) -> str:
    seen: dict[str, set[str]] = {}
    for each in found.values():
        for name, versions in each.get("versions", {}).items():
            seen.setdefault(name, set()).update(versions)
    if not seen:
        return ""
    lines = [f"- {name} {', '.join(sorted(versions))}" for name, versions in sorted(seen.items())]
    return "\n".join(["## Machine and versions", "", *lines])

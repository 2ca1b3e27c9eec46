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
from entropy_mcmc_reproduction.claims import FLATNESS
from entropy_mcmc_reproduction.items import MODULES, Draw, Item, Outcome, Verdict, item
from entropy_mcmc_reproduction.jobs import Place
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, NOT_RUN, UNDECIDED, markdown
from tournament.page import folded

PICTURES = Path("pictures/reproduction")

_HEAD = """\
# Reproduction: what the paper claims, and what was measured

Made by `emcmc reproduce --page docs/reproduction.md` from `results/{size}/`: do not edit. The rules
are in the [protocol](protocol.md), which says what was fixed before which runs."""

_SMALL = """\
Here means: small networks and data, on two cores ([protocol](protocol.md#regimes)). What holds
here may fail at the paper's size, and the other way round; what is arithmetic (the first two rows)
may not. What each ingredient of the recipe gives is in
[a table of its own](tournament.md#what-each-ingredient-gives)."""

_READING = """\
A dot is the mean gain of Entropy-MCMC (below: of the claim's first variant), the line its 95 %
interval over seeds, cut at the frame. *Decided* is a difference whose p value is below 0.05 after
Holm's correction within a family of claims; two methods are *alike* where the 90 % interval lies
within the grey margin (of NLL at most 0.01 nats and 2.5 %; on CIFAR-10 0.02 nats, 1.7 %).
*Interim*: runs are missing."""

_WORDS = """\
**Methods.** *EMCMC*: one chain of Entropy-MCMC, predictions averaged over 8 samples of θ. *guide*:
its θ_a at the last step, as one network. *iterates*: the average of 8 of SGD's last iterates.
*SGHMC*: SGLD with momentum, that is EMCMC without the guide. *×4*: four chains, a quarter of the
passes each; so have the networks of *ensemble 4*. All have the same number of gradients."""

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

NOT_HERE = "**not run here**"
FIRST = ("", "nll", "train_nll", *FLATNESS)
DECISIONS = (HOLDS, ALIKE, FAILS, UNDECIDED, NOT_RUN)


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
    return own | ({effects.FIGURE} if effects.is_shown(found) else set())


def page(results: Path, size: str) -> str:
    """The whole page."""
    found = outcomes(results, size)
    items = {name: item(name) for name in MODULES}
    place = Place(results / size, Path(), str(results))
    parts = [_HEAD.format(size=size), _summary(items, found), _COMMANDS.format(size=size)]
    parts += [_overview(items, found)]
    parts += [_section(name, items[name], found.get(name), size, place) for name in MODULES]
    parts += [_total(found), _versions(found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(items: dict[str, Item], found: dict[str, dict[str, Any]]) -> str:
    """A picture of the effects, and what the paper says beside what was seen."""
    if not found:
        return ""
    parts = ["## What the paper says, and what was seen here"]
    if effects.is_shown(found):
        link = f"{PICTURES.as_posix()}/{effects.FIGURE}.png"
        parts += [f"![Effects with intervals]({link})", _READING]
    return "\n\n".join([*parts, said(items, found), _SMALL, _WORDS])


def said(items: dict[str, Item], found: dict[str, dict[str, Any]]) -> str:
    """A row for each item of which the paper says something: its claims by their verdicts."""
    lines = ["| the paper says | seen here | item |", "|---|---|---|"]
    for name, each in items.items():
        claims = [v for v in first(found[name]) if v.source == "paper"] if name in found else []
        if each.says:
            seen = _seen(claims) if claims else NOT_HERE
            lines.append(f"| {each.says} | {seen} | [{name}](#{name}) |")
    return "\n".join(lines)


def _seen(claims: list[Verdict]) -> str:
    """Claims by verdict."""
    by: dict[str, list[str]] = {}
    for verdict in claims:
        below = " (by less than the margin)" if verdict.small else ""
        by.setdefault(verdict.decision, []).append(verdict.short + below)
    parts = [f"**{each}**: {', '.join(by[each])}" for each in DECISIONS if each in by]
    return f"**{claims[0].decision}**" if len(claims) == 1 else "; ".join(parts)


def first(outcome: dict[str, Any]) -> list[Verdict]:
    """The verdicts that decide an item: on NLL, flatness, or what has no unit."""
    verdicts = [Verdict(**verdict) for verdict in outcome["verdicts"]]
    return [verdict for verdict in verdicts if verdict.measure in FIRST]


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


def _total(found: dict[str, dict[str, Any]]) -> str:
    hours = sum(each.get("seconds", 0.0) for each in found.values()) / 3600
    if not hours:
        return ""
    return (
        f"The items above took {hours:.1f} hours of one thread, searches among them; of a run that "
        "was interrupted, the time since it went on is counted."
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
    return f"{head} {made}\n\n{folded('Table, figures and verdicts', [text]).rstrip()}"


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

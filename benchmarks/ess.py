"""Effective samples per gradient and per CPU-second, at most 5 % bias in variance.

    python benchmarks/ess.py run [--targets NAME ...] [--methods NAME ...]
    python benchmarks/ess.py seconds [--targets ...] [--methods ...] [--rounds 5] [--turn 0.5]
    python benchmarks/ess.py render

`run` measures effective samples per gradient, for which the machine need not be quiet: what is
missing in results/benchmarks/ess.json, sampler by sampler; it can be stopped and started again.
`effective/search.py` says how the step size is found, the same way for all. ESS is that of the
worst number, of its mean or its square. All chains start from draws of the target, NUTS and MCLMC
start adapted, and nobody's compilation or warm-up is counted. `seconds` measures gradients per
CPU-second of every sampler that has an ESS, at its step size, on a quiet machine: target by target,
where one is missing, in turns, in one process; it goes on with the next target where it stopped.
`render` writes docs/ess.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from effective import others, search, targets, turns
from effective.measure import Place
from effective.page import page
from effective.reference import quadratic_of, reference, starts_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks" / "ess.json"
STARTS = ROOT / "results" / "benchmarks" / "ess-starts"
PAGE = ROOT / "docs" / "ess.md"
ROWS = 2000  # of the logistic regression

MAKERS = {
    "gaussian-10": lambda: targets.gaussian(10),
    "gaussian-1000": lambda: targets.gaussian(1000),
    "two-modes": targets.two_modes,
    "logistic-full": lambda: targets.logistic(ROWS, None),
    "logistic-64": lambda: targets.logistic(ROWS, 64),
    "logistic-64-control": lambda: targets.logistic(ROWS, 64, control=True),
    "network": targets.network,
}
METHODS = search.METHODS


def place_of(target: targets.Target, known: dict[str, Any], file: Path, share: float) -> Place:
    """Where the samplers of a target run."""
    steps = max(8, int(share * target.steps))
    return Place(known["stiffest"], known["condition"], steps, starts_of(target, file))


def load(path: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"references": {}, "targets": {}, "cells": {}, "seconds": {}}
    return empty | (json.loads(path.read_text()) if path.exists() else {})


def put(path: Path, part: str, key: str, value: Any) -> None:
    """Store one entry; those that another process wrote meanwhile are kept."""
    stored = load(path)
    stored[part][key] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(stored, indent=1))
    temporary.replace(path)


def run(options: argparse.Namespace) -> None:
    """Measure what is missing."""
    torch.set_num_threads(1)
    stored = load(options.results)
    for name in options.targets:
        missing = [m for m in options.methods if is_missing(stored, name, m)]
        if not missing:
            continue
        target = MAKERS[name]()
        known, file = known_of(name, target, stored, options)
        place = place_of(target, known, file, options.share)
        quadratic = quadratic_of(target, known, place.starts[-1])
        for method in missing:
            if target.batch is not None and method in others.FULL_ENERGY:
                continue  # they need the full energy: see the table of the full batch
            begin, cell = time.process_time(), None
            before = stored["cells"].get(f"{name} | {method}", {})
            if name.startswith("gaussian"):
                cell = search.checked_cell(target, known, method, place, quadratic)
            cell = cell or search.searched_cell(
                target, known, method, place, quadratic, replayed(before)
            )
            about = {"steps": place.steps, "chains": len(place.starts), "load": os.getloadavg()[0]}
            about |= {"protocol": search.PROTOCOL, "took": time.process_time() - begin}
            put(options.results, "cells", f"{name} | {method}", {**cell, **about})
            print(f"{name} | {method} | {about['took']:.0f} s", cell["best"], flush=True)


def replayed(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a stored cell that a new search may take over."""
    return list(cell["tried"]) if cell.get("protocol") == search.REPLAYED else []


def is_missing(stored: dict[str, Any], name: str, method: str) -> bool:
    """Whether a cell is to be measured: not there, or by an earlier search."""
    cell = stored["cells"].get(f"{name} | {method}", {})
    return bool(cell.get("protocol") != search.PROTOCOL)


def known_of(
    name: str, target: targets.Target, stored: dict[str, Any], options: argparse.Namespace
) -> tuple[dict[str, Any], Path]:
    """What is known of a target, and the file of its starts; made if missing."""
    family = name.split("-")[0] if name.startswith("logistic") else name
    file = options.starts / f"{family}.npy"
    there = target.exact is not None or file.exists()
    if family not in stored["references"] or not there:
        stored["references"][family] = reference(target, file)
        put(options.results, "references", family, stored["references"][family])
    about = {"title": target.name, "dim": target.dim, "family": family}
    put(options.results, "targets", name, about)
    return stored["references"][family], file


def seconds(options: argparse.Namespace) -> None:
    """Gradients per CPU-second of the samplers that have an ESS, target by target, in turns."""
    torch.set_num_threads(1)
    stored = load(options.results)
    for name in options.targets:
        ready = ranked(stored, name, options.methods)
        before = stored["seconds"].get(name, {"rates": {}, "compiling": {}})
        if set(ready) <= set(before["rates"]):
            continue
        target = MAKERS[name]()
        known, file = known_of(name, target, stored, options)
        place, begin = place_of(target, known, file, 1.0), time.perf_counter()
        players = {}
        for method, step in ready.items():
            players[method] = turns.player(target, method, step, place, options.turn)
            print(f"{name} | {method} | compiled: {players[method].compiling:.0f} s", flush=True)
        made = turns.timed(players, options.rounds)
        merged = {part: {**before[part], **made[part]} for part in made}
        about = {"chains": len(place.starts), "rounds": options.rounds, "load": os.getloadavg()[0]}
        put(options.results, "seconds", name, {**merged, **about})
        print(f"{name} | {time.perf_counter() - begin:.0f} s", flush=True)


def ranked(stored: dict[str, Any], name: str, methods: list[str]) -> dict[str, float]:
    """Samplers of a target that have an ESS, with their step sizes."""
    cells = {method: stored["cells"].get(f"{name} | {method}") for method in methods}
    return {method: c["best"]["step"] for method, c in cells.items() if c and c["best"]}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("run", "seconds", "render"))
    parser.add_argument("--targets", nargs="+", choices=tuple(MAKERS), default=list(MAKERS))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--share", type=float, default=1.0, help="of each target's gradients")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each sampler, for seconds")
    parser.add_argument("--turn", type=float, default=turns.TURN, help="CPU-seconds of a turn")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--starts", type=Path, default=STARTS, help="draws to start from")
    options = parser.parse_args(arguments)
    if options.part == "render":
        PAGE.write_text(page(load(options.results)))
    else:
        {"run": run, "seconds": seconds}[options.part](options)


if __name__ == "__main__":
    main()

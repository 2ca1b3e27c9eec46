"""Effective samples per gradient and per CPU-second, at most 5 % bias in variance.

    python benchmarks/ess.py run [--targets NAME ...] [--methods NAME ...]
    python benchmarks/ess.py seconds [--rounds 7] [--wait]
    python benchmarks/ess.py render

`run` measures what is missing in results/benchmarks/ess.json, cell by cell, and can be stopped and
started again. Each method has two runs: a first step size, and then what its bias suggests; the one
with most effective samples counts whose variances are right to 5 % (`effective/measure.py`). ESS is
that of the worst number. All chains start from draws of the target, NUTS and MCLMC start adapted,
and nobody's compilation or warm-up is counted. `seconds` times samplers of the logistic regression
at those step sizes in turns, in one process. `render` writes docs/ess.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from effective import measure, others, ours, targets, turns
from effective.measure import Place
from effective.page import page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks" / "ess.json"
PAGE = ROOT / "docs" / "ess.md"
ROWS = 2000  # of the logistic regression
AIM = 0.04  # of the bias that the next step size should have
REFERENCE = 40_000  # about so many gradients of each of four NUTS chains

MAKERS = {
    "gaussian-10": lambda: targets.gaussian(10),
    "gaussian-1000": lambda: targets.gaussian(1000),
    "two-modes": targets.two_modes,
    "logistic-full": lambda: targets.logistic(ROWS, None),
    "logistic-64": lambda: targets.logistic(ROWS, 64),
    "logistic-64-control": lambda: targets.logistic(ROWS, 64, control=True),
    "network": targets.network,
}
METHODS = {**{name: ours for name in ours.METHODS}, **{name: others for name in others.METHODS}}


def reference(target: targets.Target, file: Path, seed: int = 77) -> dict[str, Any]:
    """Variances, known or of a long NUTS run, and the extreme curvatures of the energy.

    Draws from which chains start are kept in `file`.
    """
    error = 0.0
    if target.exact is not None:
        draws, variances = target.exact(256).numpy(), target.variances
    else:
        draws, variances, error = nuts_reference(target, seed)
    np.save(file, draws.astype(np.float32))
    curvature = torch.func.hessian(lambda t: -target.log_density(t))
    hessian = curvature(torch.tensor(draws[-1])).double()
    spectrum = torch.linalg.eigvalsh(hessian)
    stiffest = float(spectrum[-1])
    softest = float(spectrum[spectrum > 1e-3 * stiffest / target.dim].min())
    if target.name == "two modes":
        softest = 0.2  # the crossing between the modes is slower than any curvature says
    return {
        "title": target.name,
        "variances": [float(v) for v in variances],
        "order": order_of(target, hessian),
        "variance_error": error,
        "stiffest": stiffest,
        "condition": max(stiffest / softest, 1.0),
    }


def order_of(target: targets.Target, hessian: torch.Tensor) -> list[int] | None:
    """Numbers by the variance that the curvature at a draw gives; None for known variances."""
    if target.variances is not None:
        return None
    if len(target.observe(np.zeros((1, target.dim), dtype=np.float32))[0]) != target.dim:
        return list(range(20))  # predictions
    widths = torch.linalg.pinv(hessian).diagonal()
    return [int(i) for i in widths.argsort()]


def nuts_reference(target: targets.Target, seed: int) -> tuple[Any, Any, float]:
    """256 draws, variances of what is observed, and the mean relative error of one of them."""
    full = replace(target, batch=None, observe=lambda t: t)
    jitter = 0.01 * torch.randn(4, target.dim, generator=torch.Generator().manual_seed(seed))
    place = Place(1.0, 1.0, REFERENCE, (target.first() + jitter).numpy(), seed)
    draws = others.run(full, "blackjax NUTS", 1.0, place).draws
    shown = target.observe(draws).astype(np.float64)
    flat = shown.reshape(-1, shown.shape[-1])
    ess = measure.all_ess((shown - flat.mean(0)) ** 2)
    thinned = draws[:, :: max(1, draws.shape[1] // 64)][:, :64].reshape(-1, target.dim)
    return thinned, flat.var(0), float(np.sqrt(2 / ess).mean())


def place_of(target: targets.Target, known: dict[str, Any], file: Path, share: float) -> Place:
    """Where the samplers of a target run."""
    starts = np.load(file)[-target.chains :]
    return Place(known["stiffest"], known["condition"], int(share * target.steps), starts)


def measure_cell(
    target: targets.Target, known: dict[str, Any], method: str, place: Place
) -> dict[str, Any]:
    """Every step size tried, and the best accurate one."""
    rows: list[dict[str, Any]] = []
    module, ratio = METHODS[method], METHODS[method].first_step(method, target)
    for _ in range(1 if method.endswith("NUTS") else target.runs):
        try:
            made = module.run(target, method, ratio, place)
            result = measure.measured(made, known["variances"], known["order"])
            rows.append(
                {
                    "step": ratio,
                    **asdict(result),
                    "judged": result.judged,
                    "accurate": result.accurate,
                }
            )
        except Exception as error:  # a rule that diverges or an API that changed: say so, go on
            rows.append({"step": ratio, "error": f"{type(error).__name__}: {error}"[:200]})
        ratio *= next_factor(rows[-1])
    good = [row for row in rows if row.get("accurate")]
    return {"tried": rows, "best": max(good, key=lambda r: r["per_gradient"]) if good else None}


def next_factor(row: dict[str, Any]) -> float:
    """What to multiply the step size by: biases grow about in proportion to it.

    >>> next_factor({"error": "diverged"})
    0.25
    >>> next_factor({"bias": 0.1, "judged": True, "accurate": False})
    0.4
    """
    if "error" in row or not np.isfinite(row["bias"]):
        return 0.25
    if not row["judged"]:
        return 4.0  # faster, so that there is something to judge
    wanted = AIM / max(row["bias"], 1e-6)
    limits = (1.4, 4.0) if row["accurate"] else (0.2, 0.6)
    return float(np.clip(wanted, *limits))


def load(path: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"references": {}, "targets": {}, "cells": {}, "seconds": {}}
    return empty | (json.loads(path.read_text()) if path.exists() else {})


def save(path: Path, stored: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(stored, indent=1))
    temporary.replace(path)


def run(options: argparse.Namespace) -> None:
    """Measure what is missing."""
    torch.set_num_threads(1)
    stored = load(options.results)
    options.cache.mkdir(parents=True, exist_ok=True)
    for name in options.targets:
        target = MAKERS[name]()
        known, file = known_of(name, target, stored, options)
        for method in options.methods:
            key = f"{name} | {method}"
            if key in stored["cells"]:
                continue
            if target.batch is not None and method in others.FULL_ENERGY:
                continue  # they need the full energy: see the table of the full batch
            place = place_of(target, known, file, options.share)
            cell = measure_cell(target, known, method, place)
            stored["cells"][key] = {**cell, "steps": place.steps, "load": os.getloadavg()[0]}
            save(options.results, stored)
            print(key, cell["best"], flush=True)


def known_of(
    name: str, target: targets.Target, stored: dict[str, Any], options: argparse.Namespace
) -> tuple[dict[str, Any], Path]:
    """What is known of a target, and the file of its starts; made if missing."""
    family = name.split("-")[0] if name.startswith("logistic") else name
    file = options.cache / f"{family}.npy"
    if family not in stored["references"] or not file.exists():
        stored["references"][family] = reference(target, file)
        save(options.results, stored)
    stored["targets"][name] = {
        "title": target.name, "chains": target.chains, "dim": target.dim, "family": family
    }  # fmt: skip
    return stored["references"][family], file


def seconds(options: argparse.Namespace) -> None:
    """Gradients per second of samplers of the logistic regression, in turns.

    All are compiled first; with --wait the turns begin after a line on the standard input, so that
    a machine has to be quiet for them alone.
    """
    torch.set_num_threads(1)
    stored = load(options.results)
    ready = {}
    for name in [n for n in options.targets if n.startswith("logistic")]:
        target = MAKERS[name]()
        known, file = known_of(name, target, stored, options)
        place = place_of(target, known, file, 1.0)
        ready[name] = {
            method: turns.player(target, method, cell["best"]["step"], place)
            for method in options.methods
            if (cell := stored["cells"].get(f"{name} | {method}")) and cell["best"]
        }
    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    for name, players in ready.items():
        stored["seconds"][name] = turns.rates(players, options.rounds)
        save(options.results, stored)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("run", "seconds", "render"))
    parser.add_argument("--targets", nargs="+", choices=tuple(MAKERS), default=list(MAKERS))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--share", type=float, default=1.0, help="of each target's gradients")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each sampler, for seconds")
    parser.add_argument("--wait", action="store_true", help="compile, then wait for a line")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/emcmc-ess").expanduser())
    options = parser.parse_args(arguments)
    if options.part == "render":
        PAGE.write_text(page(load(options.results)))
    else:
        {"run": run, "seconds": seconds}[options.part](options)


if __name__ == "__main__":
    main()

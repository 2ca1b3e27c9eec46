"""Effective samples per gradient and per CPU-second, at most 5 % bias in variance.

    python benchmarks/ess.py run [--targets NAME ...] [--methods NAME ...] [--steps 20000]
    python benchmarks/ess.py render

`run` measures what is missing in results/benchmarks/ess.json, cell by cell, and can be stopped and
started again. Each method tries three step sizes and keeps the one with most effective samples
whose variances are right to 5 % (`effective/measure.py`). ESS is that of the worst number; NUTS and
MCLMC start adapted, and nobody's compilation or warm-up is counted. `render` writes docs/ess.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from effective import measure, others, ours, targets

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks" / "ess.json"
PAGE = ROOT / "docs" / "ess.md"
CHAINS = 4


def make_target(name: str, rows: int) -> targets.Target:
    makers = {
        "gaussian-10": lambda: targets.gaussian(10),
        "gaussian-1000": lambda: targets.gaussian(1000),
        "two-modes": targets.two_modes,
        "logistic-full": lambda: targets.logistic(rows, None),
        "logistic-64": lambda: targets.logistic(rows, 64),
        "network": targets.network,
    }
    return makers[name]()


NAMES = ("gaussian-10", "gaussian-1000", "two-modes", "logistic-full", "logistic-64", "network")
METHODS = {**{name: ours for name in ours.METHODS}, **{name: others for name in others.METHODS}}


def steps_tried(method: str) -> tuple[float, ...]:
    return ours.METHODS[method][1] if method in ours.METHODS else others.METHODS[method]


def reference(target: targets.Target, seed: int = 77) -> dict[str, Any]:
    """Variances, known or of a NUTS run, and the extreme curvatures of the energy."""
    energy = lambda t: -target.log_density(t)  # noqa: E731
    if target.variances is not None:
        variances, centre = target.variances, torch.zeros(target.dim)
    else:
        full = targets.Target(**{**vars(target), "batch": None, "observe": lambda t: t})
        run = others.run(full, "blackjax NUTS", 0.0, 1.0, 1.0, 0, CHAINS, seed)
        centre = torch.tensor(run.draws.reshape(-1, target.dim)[-1])
        shown = target.observe(run.draws)
        variances = shown.reshape(-1, shown.shape[-1]).var(0)
    spectrum = torch.linalg.eigvalsh(torch.func.hessian(energy)(centre).double())
    stiffest = float(spectrum[-1])
    softest = float(spectrum[spectrum > 1e-3 * stiffest / target.dim].min())
    if target.name == "two modes":
        softest = 0.2  # the crossing between the modes is slower than any curvature says
    return {
        "variances": [float(v) for v in variances],
        "stiffest": stiffest,
        "condition": max(stiffest / softest, 1.0),
    }


def measure_cell(
    target: targets.Target, known: dict[str, Any], method: str, steps: int
) -> dict[str, Any]:
    """Every step size tried, and the best accurate one."""
    rows = []
    for ratio in steps_tried(method):
        place = known["stiffest"], known["condition"], steps, CHAINS, 1
        try:
            made = METHODS[method].run(target, method, ratio, *place)
        except Exception as error:  # a rule that diverges or an API that changed: say so, go on
            rows.append({"step": ratio, "error": f"{type(error).__name__}: {error}"[:200]})
            continue
        result = measure.measured(made, known["variances"])
        rows.append({"step": ratio, **asdict(result), "accurate": result.accurate})
    good = [row for row in rows if row.get("accurate")]
    return {"tried": rows, "best": max(good, key=lambda r: r["per_gradient"]) if good else None}


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {"targets": {}, "cells": {}}


def save(path: Path, stored: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(stored, indent=1))
    temporary.replace(path)


def run(options: argparse.Namespace) -> None:
    """Measure what is missing."""
    torch.set_num_threads(1)
    stored = load(options.results)
    for name in options.targets:
        target = make_target(name, options.rows)
        if name not in stored["targets"]:
            stored["targets"][name] = {"title": target.name, **reference(target)}
            save(options.results, stored)
        known = stored["targets"][name]
        for method in options.methods:
            key = f"{name} | {method}"
            if key in stored["cells"]:
                continue
            if target.batch is not None and method in ("blackjax NUTS", "blackjax MCLMC"):
                continue  # they need the full energy: see the table of the full batch
            cell = measure_cell(target, known, method, options.steps)
            stored["cells"][key] = {**cell, "steps": options.steps, "load": os.getloadavg()[0]}
            save(options.results, stored)
            print(key, cell["best"], flush=True)


def render(stored: dict[str, Any]) -> str:
    """The page: a table for each target, best per gradient first."""
    lines = [
        "# Effective samples per gradient",
        "",
        "Made by `python benchmarks/ess.py run` and `render` from `results/benchmarks/ess.json`. "
        f"{CHAINS} chains; ESS is that of the worst number (of the network: of 20 predictions), at "
        "the best of three step sizes whose variances are right to 5 % within two standard errors. "
        "CPU-seconds of one thread on a shared machine, without compilation and warm-up; samplers "
        "of this library run eagerly, blackjax compiled. The condition is that of the Hessian.",
    ]
    for name, known in stored["targets"].items():
        rows = [
            (key.split(" | ")[1], cell)
            for key, cell in stored["cells"].items()
            if key.startswith(f"{name} |")
        ]
        rows.sort(key=lambda row: -(row[1]["best"] or {"per_gradient": 0})["per_gradient"])
        title = f"## {known['title']}"
        lines += ["", title, "", f"Condition {known['condition']:.3g}.", ""]
        lines += ["| sampler | ESS per 1,000 gradients | ESS per second | ESS | bias | step |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_row(method, cell) for method, cell in rows]
    return "\n".join(lines) + "\n"


def _row(method: str, cell: dict[str, Any]) -> str:
    best = cell["best"]
    if best is None:
        errors = [row["error"] for row in cell["tried"] if "error" in row]
        unsure = any(row.get("bias_error", 0) > measure.UNSURE for row in cell["tried"])
        why = "too short to judge" if unsure else "biased at every step size tried"
        why = errors[0].split(":")[0] if errors else why
        return f"| {method} | – | – | – | {why} | – |"
    bias = f"{best['bias']:.1%} ± {best['bias_error']:.1%}"
    numbers = f"{1000 * best['per_gradient']:.3g} | {best['per_second']:.3g} | {best['ess']:.0f}"
    return f"| {method} | {numbers} | {bias} | {best['step']:g} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("run", "render"))
    parser.add_argument("--targets", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--steps", type=int, default=20_000, help="gradients of each chain")
    parser.add_argument("--rows", type=int, default=2000, help="of the logistic regression")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.part == "run":
        run(options)
    else:
        PAGE.write_text(render(load(options.results)))


if __name__ == "__main__":
    main()

"""Fig. 2 and appendix: where chains on the two-mode landscape go, one by one and by thousands."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc import chains
from entropy_mcmc_reproduction import landscape
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results, Verdict
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED

STARTS = ((-0.2, -0.2), (-0.4, -0.4), (0.0, 0.0), (-2.0, -1.0))
KINDS = {"sgd": "SGD", "sgld": "SGLD", "theta": "EMCMC θ", "guide": "EMCMC θ_a"}
COMMON = {"lr": 0.005, "eta": 0.5, "every": 10, "seed": 0}
_COLOURS = {"sgld": PALETTE["sgld"], "theta": PALETTE["emcmc"], "guide": PALETTE["guide"]}
SHORT, LONG = "synthetic/short", "synthetic/long"
CLOSE = 0.03  # to the stationary mass: what is left of the start after 20,000 iterations

# Chains of each start, and of the long run, whose length the smoke scale cuts.
_SIZES = {
    "smoke": ((4000, 500, 500, 500), 100, 200),
    "laptop": ((20_000,) * 4, 2000, 20_000),
    "paper": ((20_000,) * 4, 2000, 20_000),
}


def jobs(scale: str, place: Place) -> list[Job]:
    """All starts together, and the long run."""
    short, long, steps = _SIZES[scale]
    starts = {"starts": [list(s) for s in STARTS], "chains": list(short), "steps": 1000}
    far = {"starts": [list(STARTS[0])], "chains": [long], "steps": steps}
    return [
        Job(SHORT, "synthetic:compute", {**COMMON, **starts}),
        Job(LONG, "synthetic:compute", {**COMMON, **far}),
    ]


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Draws of every kind, summed up start by start."""
    counts = settings["chains"]
    starts = torch.tensor(settings["starts"])
    draws = _draws(settings, starts.repeat_interleave(torch.tensor(counts), 0))
    draws["sgd"] = torch.split(_run(settings, starts, "sgld", temperature=0.0).theta, 1)
    return {
        "starts": [
            {
                "start": start,
                "chains": counts[i],
                "steps": settings["steps"],
                **{kind: _summary(draws[kind][i], settings["every"]) for kind in KINDS},
            }
            for i, start in enumerate(settings["starts"])
        ]
    }


def _draws(settings: dict[str, Any], init: Tensor) -> dict[str, Any]:
    sgld = _run(settings, init, "sgld")
    emcmc = _run(settings, init, "emcmc", eta=settings["eta"])
    trees = {"sgld": sgld.theta, "theta": emcmc.theta, "guide": emcmc.guide}
    return {kind: torch.split(tree, settings["chains"]) for kind, tree in trees.items()}


def _run(settings: dict[str, Any], init: Tensor, sampler: str, **options: Any) -> Any:
    every = settings["every"]
    return chains.run(
        landscape.energy,
        init,
        sampler=sampler,
        steps=settings["steps"],
        lr=settings["lr"],
        seed=settings["seed"],
        burn_in=every - 1,
        thin=every,
        num_data=1,
        **options,
    )


def _summary(draws: Tensor, every: int) -> dict[str, Any]:
    """Share of chains nearer the flat mode over time, and one path, of draws (chain, draw, 2)."""
    flat = landscape.nearer_flat(draws).double()
    late = flat[:, -max(1, flat.shape[1] // 4) :].mean(1)
    stride = max(1, draws.shape[1] // 100)
    return {
        "fraction": float(flat[:, -1].mean()),
        "error": _error(flat[:, -1]),
        "late_fraction": float(late.mean()),
        "late_error": _error(late),
        "all_fraction": float(flat.mean()),
        "all_error": _error(flat.mean(1)),
        "iterations": [every * (i + 1) for i in range(0, draws.shape[1], stride)],
        "over_time": [round(float(v), 5) for v in flat.mean(0)[::stride]],
        "path": [[round(float(c), 3) for c in point] for point in draws[0]],
    }


def _error(values: Tensor) -> float:
    return float(values.std(correction=0)) / math.sqrt(len(values))


def show(results: Results, scale: str) -> Outcome:
    """Fractions by start, the long run, trajectories and verdicts."""
    if not {SHORT, LONG} <= set(results):
        return Outcome([], [], [])
    short, long = results[SHORT]["starts"], results[LONG]["starts"][0]
    columns = ["start", "iterations", "chains", *KINDS.values()]
    rows = [*(_row(found, "") for found in short), _row(long, "late_")]
    exact = landscape.flat_mass(), landscape.flat_mass(COMMON["eta"])
    rows.append(
        ["stationary distribution", "∞", "", "", f"{exact[0]:.4f}", *(f"{e:.4f}" for e in exact)]
    )
    notes = [
        "Share of chains nearer the flat mode, ± standard error: after 1000 iterations, and for "
        "the long run the mean over its last quarter. α = 0.005, η = 0.5; the trajectories are "
        "those of the first chain of each start, drawn every 10 iterations."
    ]
    figures = {
        "synthetic": lambda path: draw_paths(path, short, long),
        "synthetic-fractions": lambda path: draw_fractions(path, short, long),
    }
    return Outcome(columns, rows, [*_short_verdicts(short), *_long_verdicts(long)], figures, notes)


def _row(found: dict[str, Any], when: str) -> list[str]:
    cells = [_share(found[kind], when, exact=kind == "sgd") for kind in KINDS]
    return [_point(found["start"]), f"{found['steps']:,}", f"{found['chains']:,}", *cells]


def _share(summary: dict[str, Any], when: str, *, exact: bool = False) -> str:
    value = summary[f"{when}fraction"]
    return f"{value:.0f}" if exact else f"{value:.4f} ± {summary[f'{when}error']:.4f}"


def _point(start: list[float]) -> str:
    return f"({start[0]:g}, {start[1]:g})".replace("-", "−")


def _short_verdicts(short: list[dict[str, Any]]) -> list[Verdict]:
    ridge, worst = short[0], min(short, key=lambda found: found["theta"]["fraction"])
    gain = ridge["theta"]["fraction"] - ridge["sgld"]["fraction"]
    error = math.hypot(ridge["theta"]["error"], ridge["sgld"]["error"])
    ends = [found["sgd"]["fraction"] for found in short]
    return [
        Verdict(
            "From the ridge (−0.2, −0.2) EMCMC finds the flat mode, SGLD is trapped in the sharp",
            f"after 1000 iterations near the flat mode: EMCMC θ {_share(ridge['theta'], '')}, SGLD "
            f"{_share(ridge['sgld'], '')}; difference {gain:.4f} ± {error:.4f}",
            _decided(ridge["theta"]["fraction"] - 0.5, ridge["theta"]["error"]),
            short="from the ridge",
        ),
        Verdict(
            "EMCMC finds the flat mode no matter how it is initialised",
            f"from {_point(worst['start'])} near the flat mode: θ {_share(worst['theta'], '')}, "
            f"θ_a {_share(worst['guide'], '')}; SGLD {_share(worst['sgld'], '')}",
            _decided(worst["theta"]["fraction"] - 0.5, worst["theta"]["error"]),
            short="from any start",
        ),
        Verdict(
            "Samples of θ_a are always around the flat mode",
            f"share of all θ_a in 1000 iterations from the ridge: {_share(ridge['guide'], 'all_')}",
            _decided(ridge["guide"]["all_fraction"] - 0.95, ridge["guide"]["all_error"]),
            short="θ_a always near the flat mode",
        ),
        Verdict(
            "SGD's mode depends on where it starts",
            f"near the flat mode, start by start: {', '.join(f'{e:.0f}' for e in ends)}",
            HOLDS if len(set(ends)) > 1 else FAILS,
            short="SGD's mode depends on its start",
        ),
    ]


def _decided(gain: float, error: float) -> str:
    if abs(gain) <= 2 * error:
        return UNDECIDED
    return HOLDS if gain > 0 else FAILS


def _long_verdicts(long: dict[str, Any]) -> list[Verdict]:
    exact = landscape.flat_mass(), landscape.flat_mass(COMMON["eta"])
    theta, guide = long["theta"], long["guide"]
    gaps = [abs(s["late_fraction"] - e) for s, e in zip((theta, guide), exact, strict=True)]
    sure = max(theta["late_error"], guide["late_error"]) <= CLOSE / 2 and long["steps"] >= 20_000
    close = HOLDS if max(gaps) <= CLOSE else FAILS
    return [
        Verdict(
            "In a long run θ and θ_a converge to their targets",
            f"near the flat mode late in {long['steps']:,} iterations: θ {_share(theta, 'late_')} "
            f"(target {exact[0]:.4f}), θ_a {_share(guide, 'late_')} (target {exact[1]:.4f}); "
            f"counted as reached within {CLOSE}",
            close if sure else UNDECIDED,
            short="long runs converge to their targets",
        ),
        Verdict(
            "In a long run θ_a still samples from the flat mode alone",
            f"θ_a near the flat mode: {_share(guide, 'late_')}",
            _decided(guide["late_fraction"] - 0.95, guide["late_error"]),
            short="long runs of θ_a stay in the flat mode",
        ),
    ]


def draw_paths(path: Path, short: list[dict[str, Any]], long: dict[str, Any]) -> None:
    """A row of panels for each start, and for the long run."""
    rows = [*short, long]
    figure, axes = panels(len(rows) * len(KINDS), len(KINDS), 2.2, 2.0, share=True)
    side = np.linspace(-5.0, 5.0, 161)
    heights = -np.log(landscape.density(np.stack(np.meshgrid(side, side), -1)))
    for found, line in zip(rows, np.reshape(np.array(axes), (len(rows), -1)), strict=True):
        for (kind, label), axis in zip(KINDS.items(), line, strict=True):
            axis.contour(side, side, heights.clip(max=8), 6, cmap="Greys_r", linewidths=0.6)
            _path(axis, np.array(found[kind]["path"]), found["start"])
            axis.set(xlim=(-5, 5), ylim=(-4.5, 4.5))
            if found is rows[0]:
                axis.set_title(label, fontsize=11)
        line[0].set_ylabel(f"from {_point(found['start'])}\n{found['steps']:,} iterations", size=8)
    save(figure, path)


def _path(axis: Any, points: Any, start: list[float]) -> None:
    thinned = points[:: max(1, len(points) // 500)]
    if len(points) <= 100:
        axis.plot(*np.vstack([start, points]).T, color=PALETTE["emcmc"], lw=0.5, alpha=0.5)
    colours = np.linspace(0, 1, len(thinned))
    axis.scatter(*thinned.T, c=colours, cmap="viridis", s=5, lw=0, zorder=2)
    axis.plot(*start, "x", color=PALETTE["sam"], markersize=6, markeredgewidth=2, zorder=3)


def draw_fractions(path: Path, short: list[dict[str, Any]], long: dict[str, Any]) -> None:
    """The share near the flat mode over the iterations, for each start."""
    rows = [*short, long]
    figure, axes = panels(len(rows), len(rows), 2.6, 2.6)
    for found, axis in zip(rows, axes, strict=True):
        for kind in ("sgld", "theta", "guide"):
            times, shares = found[kind]["iterations"], found[kind]["over_time"]
            axis.plot(times, shares, color=_COLOURS[kind], label=KINDS[kind], lw=1.4)
        axis.axhline(landscape.flat_mass(), color="grey", lw=0.8, ls="--", label="stationary")
        axis.set(title=f"from {_point(found['start'])}", xlabel="iteration", ylim=(0, 1))
    axes[0].set_ylabel("share nearer the flat mode")
    axes[0].legend(frameon=False, fontsize=8)
    save(figure, path)


ITEM = Item(
    "Chains on the two-mode landscape",
    "Fig. 2 and appendix",
    jobs,
    show,
    says="EMCMC finds the flat mode from any start, SGLD is trapped in the sharp one",
)

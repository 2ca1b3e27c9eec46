"""How the treatment of the noise was chosen: on training rows that are held out twice.

`python -m entropy_mcmc_reproduction.regression_choice` writes results/laptop/noise-choice.json. In
every standard split, the protocol is repeated one level down: networks trained on A say what their
errors on B are; networks trained on A and B are judged on C. A, B and C are all training rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc_reproduction import regression, regression_chains, regression_shape
from entropy_mcmc_reproduction.regression_chains import KINDS
from entropy_mcmc_reproduction.regression_data import Splits, read
from entropy_mcmc_reproduction.regression_noise import NoisePosterior, NoisePrior
from entropy_mcmc_reproduction.regression_shape import Shape

TABLES = ("yacht", "boston", "energy", "wine-red", "concrete")
METHODS = ("emcmc", "ensemble")
HEAVY = (2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, float("inf"))
# The centre of the ranges of docs/protocol.md, for all tables and methods.
CENTRE = {"lr": 0.316, "prior_variance": 3.0, "horizon": 316.0}
CANDIDATES = {
    "plug-in": None,  # the best s on B, as if it were known: the first result
    "s averaged, flat": NoisePrior(),
    "s averaged, 1 row of 0.1": NoisePrior(rows=1, variance=0.1),
    "s averaged, 4 rows of 0.1": NoisePrior(rows=4, variance=0.1),
    "s averaged, 1 row of 0.01": NoisePrior(rows=1, variance=0.01),
    "s averaged, 4 rows of 0.01": NoisePrior(rows=4, variance=0.01),
    "t of 4": NoisePrior((4.0,)),
    "t of 8": NoisePrior((8.0,)),
    "t averaged": NoisePrior(HEAVY),
    "t averaged, 1 row of 0.01": NoisePrior(HEAVY, 1, 0.01),
}
# The second choice: s varies from row to row, around the first one's winner, "t averaged".
SHAPES = {f"t averaged, s by {kind}": kind for kind in regression_shape.KINDS}


def plugged_in(noise: NoisePosterior) -> NoisePosterior:
    """All weight on the most probable point."""
    best = noise.log_weights.argmax(1, keepdim=True)
    sure = torch.full_like(noise.log_weights, -torch.inf).scatter(1, best, 0.0)
    return NoisePosterior(noise.points, sure, noise.evidence)


def fitted(means: Tensor, targets: Tensor, prior: NoisePrior | None) -> NoisePosterior:
    """A candidate's noise, given held-out rows."""
    if prior is None:
        return plugged_in(NoisePosterior.given(means, targets, NoisePrior()))
    return NoisePosterior.given(means, targets, prior)


def compared(
    table: str, method: str, folder: str | None, scale: str = "laptop"
) -> dict[str, list[float]]:
    """Log-density of C by candidate, split by split, in standardised units."""
    settings = regression.job_of(method, table, scale).settings
    splits = Splits.of(*read(table, folder, None))
    outer = splits.validation(settings["validation_part"])
    inner = outer.validation(settings["validation_part"])
    first = _outputs(method, settings, inner, seed=2001, guess=None)
    guess = fitted(first, inner.judged_targets, None).typical().float()
    second = _outputs(method, settings, outer, seed=2002, guess=guess)
    found = {
        name: fitted(first, inner.judged_targets, prior)
        .log_density(second, outer.judged_targets)
        .tolist()
        for name, prior in CANDIDATES.items()
    }
    for name, kind in SHAPES.items():
        shape = Shape.given(kind, first, inner.judged_inputs, inner.judged_targets)
        inside = shape.relative(first, inner.judged_inputs)
        noise = NoisePosterior.given(first, inner.judged_targets, NoisePrior(HEAVY), inside)
        outside = shape.relative(second, outer.judged_inputs)
        found[name] = noise.log_density(second, outer.judged_targets, outside).tolist()
    return found


def _outputs(
    method: str, settings: dict[str, Any], splits: Splits, seed: int, guess: Tensor | None
) -> Tensor:
    chains = KINDS[method].chains
    course = regression.course_of(settings, splits.rows, chains, 1.0)
    numbers = {name: torch.full((len(splits),), CENTRE[name]) for name in settings["space"]}
    return regression_chains.run(
        method, numbers, splits, course, chains=chains, seed=seed, guess=guess
    )


def main() -> None:
    """Compare all candidates on all tables and methods; what is there is not made again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/laptop/noise-choice.json"))
    parser.add_argument("--data", default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    for table in TABLES:
        for method in METHODS:
            if f"{table}-{method}" not in known:
                known[f"{table}-{method}"] = compared(table, method, options.data)
                options.results.write_text(json.dumps(known, indent=1) + "\n")
    print(shown(known))


def shown(known: dict[str, dict[str, list[float]]]) -> str:
    """Mean log-density of each candidate on each table and method, and in all."""
    lines = []
    for name in (*CANDIDATES, *SHAPES):
        means = [float(torch.tensor(by[name]).mean()) for by in known.values()]
        cells = " ".join(f"{value:8.3f}" for value in means)
        lines.append(f"{name:28} {sum(means) / len(means):8.3f}  {cells}")
    head = " ".join(f"{key[:8]:>8}" for key in known)
    return "\n".join([f"{'':28} {'mean':>8}  {head}", *lines])


if __name__ == "__main__":
    main()

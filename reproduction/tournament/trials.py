"""The second league: 16 trials for every method, as a pure function of the store.

Each method draws 16 settings at a quarter of the budget; the best four by validation NLL run at the
full budget, and the best of those is the method's setting. All with one seed, never used again.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from tournament.methods import Knobs, Method, answers, trajectories
from tournament.scores import measures
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import Task

TRIALS, FINALISTS, SHARE = 16, 4, 0.25
SEED = 99  # no judged run has it
RANGES = {  # low and high, drawn evenly in logarithm
    "lr": (0.01, 0.3),
    "prior_variance": (0.01, 3.0),
    "temperature": (1e-3, 1.0),
    "horizon": (0.02, 1.0),
    "average": (0.01, 0.3),
    "weight_decay": (1e-4, 1.0),
    "rho": (0.005, 0.5),
    "scale": (0.05, 5.0),
}
LR_SCALE = {
    "adamw": 0.02,
    "bsam": 5.0,
    "ivon": 2.0,
    **dict.fromkeys(("sgld", "entropy-sgd", "entropy-sgld"), 10.0),
}  # of the range of lr; SGD's is 1


def candidates(method: Method, base: Knobs) -> list[dict[str, float]]:
    """The 16 settings: the method's recipe first, the others by a Sobol sequence."""
    if not method.open:
        return [dict(base)]
    points = qmc.Sobol(len(method.open), seed=15).random(TRIALS)[: TRIALS - 1]
    return [dict(base), *({**base, **placed(method, point)} for point in points)]


def placed(method: Method, point: np.ndarray) -> dict[str, float]:
    """Knobs at a point of the unit cube."""
    knobs = {}
    for name, place in zip(method.open, point, strict=True):
        low, high = RANGES[name]
        scale = LR_SCALE.get(method.optimizer, 1.0) if name == "lr" else 1.0
        knobs[name] = float(f"{scale * low * (high / low) ** place:.4g}")
    return knobs


def validation_nll(method: Method, runs: list[Settings], store: Store) -> float:
    """Validation NLL of a finished trial; infinite if it diverged."""
    answered = answers(method, runs, store)
    return float("inf") if answered is None else measures(answered)["validation-nll"]


def chosen(
    method: Method, task: Task, base: Knobs, store: Store
) -> tuple[dict[str, float] | None, list[Settings]]:
    """The method's setting, or None and the runs that are missing to know it."""
    knobs = candidates(method, base)
    if len(knobs) == 1:
        return knobs[0], []
    for share, kept in ((SHARE, FINALISTS), (1.0, 1)):
        runs = [trajectories(method, task, SEED, k, share) for k in knobs]
        missing = store.missing(settings for chains in runs for settings in chains)
        if missing:
            return None, missing
        values = [validation_nll(method, chains, store) for chains in runs]
        knobs = [knobs[i] for i in np.argsort(values, kind="stable")[:kept]]
    return knobs[0], []

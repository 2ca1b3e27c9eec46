"""The first league: every method by its own recipe, without a trial."""

from __future__ import annotations

from tournament.methods import Method
from tournament.tasks import Task

PRIOR_VARIANCE = 0.16  # first form, from the development tasks; see results/tournament/pilot
LR = 0.05  # of SGD with momentum 0.9
TEMPERATURE = 0.02
HORIZON = 0.2  # of all steps


def knobs(method: Method, task: Task) -> dict[str, float]:
    """The method's settings on a task; all but AdamW share prior and momentum."""
    del task  # first form: the same everywhere
    if method.optimizer == "start":
        return {}
    if method.optimizer == "adamw":
        return {"lr": 1e-3, "weight_decay": 1e-2}
    shared = {"prior_variance": PRIOR_VARIANCE}
    if method.optimizer == "sgd":
        return {"lr": LR, **shared}
    noisy = {**shared, "temperature": TEMPERATURE}
    if method.optimizer == "sgld":
        return {"lr": 4 * LR, **noisy}
    if method.optimizer == "sghmc":
        return {"lr": LR, **noisy}
    return {"lr": 2 * LR, "horizon": HORIZON, **noisy}

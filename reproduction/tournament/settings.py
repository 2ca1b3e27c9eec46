"""Settings of one trajectory, and the key under which its run is stored."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

VERSION = 1  # raise it when the same settings would give other numbers
DECAYS = ("cosine", "constant", "linear", "exponential", "step")
# Fields that came later: left out at these values, so that older runs keep their keys.
LATER = {
    "after": None,
    "decay": "cosine",
    "guide_update": "euler",
    "rho": 0.0,
    "scale": 0.0,
    "inner_steps": 0,
    "augmented": False,
    "warm_up": 0.0,
}
NESTED = ("entropy-sgd", "entropy-sgld")
GAUSSIAN = ("bsam", "ivon")  # they fit a Gaussian, whose draws predict
OPTIMIZERS = ("start", "sgd", "adamw", "sgld", "sghmc", "emcmc", "sam", *GAUSSIAN, *NESTED)


@dataclass(frozen=True)
class Settings:
    """Everything that decides one trajectory; equal settings give equal predictions.

    Attributes:
        task: Name of the task.
        seed: Of split, initialisation, batches and noise.
        chain: Number of the chain; chains share the split and nothing else.
        optimizer: One of `OPTIMIZERS`; "start" is the network that one starts from.
        passes: Length, in passes over the training rows.
        lr: Peak learning rate for the mean loss.
        momentum: μ.
        prior_variance: Of every weight, for all but AdamW.
        weight_decay: Of AdamW only.
        temperature: T; 0 for optimizers.
        horizon: ηN/lr at peak lr as a part of all steps; EMCMC only.
        noise_from: Part of each cycle after which noise is on and samples are taken.
        samples: Networks kept in each cycle.
        cycles: Cosines.
        floor: Last lr / peak lr.
        settle: Part of a cycle after which lr stays at its floor.
        coupled: When θ and θ_a are: "always", or "noisy" (only while noise is on); EMCMC only.
        average: Horizon of EMA as a part of all steps.
        after: The trajectory from whose last network this one goes on; None starts anew.
        decay: How lr falls along a cycle; one of `DECAYS`.
        guide_update: Of EMCMC; all but "euler" need momentum 0.
        rho: Radius of the neighbourhood; SAM and bSAM only.
        scale: First curvature, s₀ of bSAM and h₀ of IVON; only theirs.
        inner_steps: L of Entropy-SGD and Entropy-SGLD, whose lr is that of the inner chain.
        augmented: Whether pictures are cropped and flipped at random.
        warm_up: Part of the first cycle in which lr rises to its peak.
    """

    task: str
    seed: int
    optimizer: str
    passes: float
    lr: float
    chain: int = 0
    momentum: float = 0.9
    prior_variance: float | None = None
    weight_decay: float = 0.0
    temperature: float = 0.0
    horizon: float = 0.0
    noise_from: float = 0.5
    samples: int = 8
    cycles: int = 1
    floor: float = 0.0
    settle: float = 1.0
    coupled: str = "always"
    average: float = 0.05
    after: Settings | None = None
    decay: str = "cosine"
    guide_update: str = "euler"
    rho: float = 0.0
    scale: float = 0.0
    inner_steps: int = 0
    augmented: bool = False
    warm_up: float = 0.0

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {OPTIMIZERS}, got {self.optimizer!r}")
        if self.decay not in DECAYS:
            raise ValueError(f"decay must be one of {DECAYS}, got {self.decay!r}")
        if (self.inner_steps > 0) != (self.optimizer in NESTED):
            raise ValueError(
                f"inner_steps must be positive for {NESTED} and 0 for the others, "
                f"got {self.inner_steps} for {self.optimizer!r}"
            )

    @property
    def gradients_per_step(self) -> int:
        """Two for SAM and bSAM, L for the nested methods, else one.

        >>> Settings("digits", 0, "sam", 48, 0.1, rho=0.05).gradients_per_step
        2
        """
        return self.inner_steps or (2 if self.optimizer in ("sam", "bsam") else 1)

    @property
    def key(self) -> str:
        """Sixteen hex digits: the name of the run in the store."""
        text = json.dumps([VERSION, as_dict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_dict(settings: Settings) -> dict[str, Any]:
    """Plain values, ready for JSON; fields that came later only where they say something."""
    values = asdict(settings)
    if settings.after is not None:
        values["after"] = as_dict(settings.after)
    return {name: value for name, value in values.items() if value != LATER.get(name, ...)}

"""The three sizes of the picture experiments: in seconds, on a laptop, and as in the paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from entropy_mcmc.errors import check_choice

SCALES = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Scale:
    """Settings that all picture items share.

    Attributes:
        name: smoke, laptop or paper.
        data: Arguments of `pictures.images`.
        model: Name of the network.
        augmented: Random crops and flips.
        batch_size: Batch size of every method.
        epochs: Gradient budget of every method, in passes over the data.
        warm_epochs: Of these, spent by one SGD run from which the cyclical methods start.
        cycles: Cycles of the cyclical methods.
        samples: Samples of every method that averages; half of EMCMC's are guides.
        burn_in: Part of each cycle without noise.
        seeds: Repetitions.
        ood: Out-of-distribution sets.
        corruptions: Rows, types and severities of the corrupted test set.
        flatness: Settings of the flatness report.
        trials: Trials of each method's search; 0 for none.
        validation_rows: Pictures of the training split on which a search is judged.
        ablation_part: Length of ablations, as a part of `epochs`.
        ablation_rows: Test pictures on which ablations are judged; None for all.
        search_part: Length of the trials of a search.
        threads: Threads of torch; None leaves them as they are.
    """

    name: str
    data: dict[str, Any]
    model: str
    augmented: bool
    batch_size: int
    epochs: int
    warm_epochs: int
    cycles: int
    samples: int
    burn_in: float
    seeds: tuple[int, ...]
    ood: tuple[str, ...]
    corruptions: dict[str, Any]
    flatness: dict[str, Any] = field(default_factory=dict)
    trials: int = 0
    validation_rows: int = 0
    ablation_part: float = 1.0
    ablation_rows: int | None = None
    search_part: float = 1.0
    threads: int | None = None


_ALL = [1, 2, 3, 4, 5]
_REPORT = {
    "eigenvalues": 5,
    "tolerance": 1e-2,
    "probes": 8,
    "lanczos_probes": 1,
    "lanczos_steps": 20,
    "directions": 5,
    "distances": [0.0, 0.5, 1.0, 2.0, 4.0, 8.0],
}
_QUICK = {**_REPORT, "eigenvalues": 1, "probes": 2, "lanczos_steps": 3, "directions": 2}

_SCALES = {
    "smoke": Scale(
        name="smoke",
        data={"name": "digits", "rows": 128, "test_rows": 64, "side": 16},
        model="resnet8",
        augmented=False,
        batch_size=16,
        epochs=20,
        warm_epochs=10,
        cycles=2,
        samples=4,
        burn_in=0.5,
        seeds=(0,),
        ood=("shuffled",),
        corruptions={"rows": 16, "types": ["gaussian_noise", "fog"], "levels": [1, 5]},
        flatness={"subset": 16, "test_rows": 32, "settings": {**_QUICK, "distances": [0.0, 1.0]}},
        threads=1,
    ),
    "laptop": Scale(
        name="laptop",
        data={"name": "cifar10", "rows": 3000},
        model="resnet8",
        augmented=False,
        batch_size=128,
        epochs=48,
        warm_epochs=24,
        cycles=4,
        samples=16,
        burn_in=0.8,
        seeds=(0, 1, 2),
        ood=("svhn",),
        corruptions={"rows": 250, "types": None, "levels": _ALL},
        flatness={"subset": 500, "test_rows": 1000, "settings": _REPORT},
        trials=6,
        validation_rows=2000,
        ablation_part=0.5,
        ablation_rows=2500,
        search_part=0.25,
        threads=1,
    ),
    "paper": Scale(
        name="paper",
        data={"name": "cifar10"},
        model="resnet18",
        augmented=True,
        batch_size=128,
        epochs=200,
        warm_epochs=0,
        cycles=4,
        samples=16,
        burn_in=0.8,
        seeds=(0, 1, 2),
        ood=("svhn",),
        corruptions={"rows": 10_000, "types": None, "levels": _ALL},
        flatness={
            "subset": 5000,
            "test_rows": 10_000,
            "settings": {**_REPORT, "probes": 32, "lanczos_steps": 60, "directions": 10},
        },
    ),
}


def scale(name: str) -> Scale:
    """The scale of this name.

    >>> scale("laptop").model
    'resnet8'
    """
    check_choice("scale", name, SCALES)
    return _SCALES[name]

"""Options of a search, beside those of the runs that it tries. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entropy_mcmc.errors import ConfigError, check_count, check_number, check_positive
from entropy_mcmc.file_names import short_name
from entropy_mcmc.run.config import RunConfig, option
from entropy_mcmc.tuning.space import KNOBS


@dataclass(frozen=True)
class TuneConfig:
    """How to search.

    >>> TuneConfig(trials=32).validation
    0.2
    """

    tune_dir: str | None = option(None, "folder of the search; runs/tune-DATA-METHOD by default")
    trials: int = option(16, "settings to try; the first one is the recipe")
    validation: float = option(0.2, "part of the training rows to judge by; the rest trains")
    search: list[str] | None = field(
        default=None, metadata={"help": f"what to choose: {', '.join(KNOBS)}; by method if null"}
    )
    ranges: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "own ranges, kept as they are: {lr: [0.01, 0.3]}"}
    )
    workers: int | None = option(None, "trials at once, one thread each; all cores by default")

    def __post_init__(self) -> None:
        check_count("trials", self.trials, remedy="16 is a good start")
        part = check_positive("validation", self.validation)
        if part >= 1:
            raise ConfigError(
                f"validation must be less than 1, got validation={self.validation!r}; it is the "
                "part of the training rows that is held out"
            )
        if self.workers is not None:
            check_count("workers", self.workers)
        for name in (*(self.search or ()), *self.ranges):
            check_knob(name)
        if self.search is not None and not self.search:
            raise ConfigError("search must name something to choose, got []; leave it out")
        for name, limits in self.ranges.items():
            check_range(name, limits)

    def folder(self, config: RunConfig) -> str:
        """The folder that is meant."""
        return self.tune_dir or f"runs/tune-{short_name(config.data.name)}-{config.method}"


def check_knob(name: object) -> None:
    """Refuse what cannot be searched."""
    if name not in KNOBS:
        raise ConfigError(f"search knows {', '.join(KNOBS)}, got {name!r}")


def check_range(name: str, limits: object) -> tuple[float, float]:
    """The two ends of a range as the user gave it.

    >>> check_range("lr", [0.01, 1])
    (0.01, 1.0)
    """
    if isinstance(limits, str | Mapping) or not isinstance(limits, list | tuple):
        raise ConfigError(f"ranges.{name} must be a pair such as [0.01, 0.3], got {limits!r}")
    if len(limits) != 2:
        raise ConfigError(f"ranges.{name} must have two ends, got {limits!r}")
    low, high = (check_number(f"ranges.{name}", end) for end in limits)
    least, most = KNOBS[name].limits
    if not (least <= low < high <= most):
        raise ConfigError(
            f"ranges.{name} must have {least:g} ≤ low < high ≤ {most:g}, got {list(limits)!r}"
        )
    return low, high

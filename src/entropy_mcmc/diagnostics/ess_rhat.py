"""ESS and R-hat of predictions.

Weights of a network have symmetries and flat directions in which a chain never mixes and need
not; predictions are what a posterior is used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entropy_mcmc.errors import ConfigError, check_count

Array = NDArray[np.float64]
LEAST = 4  # draws per chain below which arviz-stats gives no R-hat
# Below these, its ESS is the cap n·log10(n) whatever the draws (tried on chains 5 sd apart):
LEAST_ESS = 12  # draws in all
LONG = 16  # draws per chain to be taken as chains of their own


@dataclass(frozen=True)
class Mixing:
    """How well draws of predictions mix; numbers are None where `notes` says why.

    Attributes:
        draws: Number of draws in all.
        chains: Number of chains that were compared (cycles of all runs).
        functions: Number of predicted numbers that were used.
        ess: Smallest and median effective sample size of a mean prediction, at most `draws`.
        rhat: Largest and median rank-normalised split R-hat.
        notes: What could not be computed, and why.
    """

    draws: int
    chains: int
    functions: int
    ess: tuple[float, float] | None
    rhat: tuple[float, float] | None
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join([self.brief(), *self.notes])

    def brief(self, groups: str = "chains", replicas: int = 1) -> str:
        """The numbers without the notes; `groups` is what the chains are called.

        Of `replicas` each counts as a chain: so many chains are one of what is counted here.
        """
        count = -(-self.chains // replicas)
        own = groups.removesuffix("s") if count == 1 else groups
        drawn = f"{self.draws} draws" + (f" of {replicas} replicas" if replicas > 1 else "")
        parts = [f"{drawn} in {count} {own}, {self.functions} predictions"]
        if self.ess:
            parts.append(f"ESS {self.ess[0]:.1f} at worst, {self.ess[1]:.1f} in the median")
        if self.rhat:
            parts.append(f"R-hat {self.rhat[0]:.3f} at worst, {self.rhat[1]:.3f} in the median")
        return "; ".join(parts)


def mixing(chains: Sequence[Any], *, max_functions: int = 200) -> Mixing:
    """ESS and R-hat of predictions over chains.

    Chains of different length are cut to the shortest, from the end. A single chain is cut into
    two halves for R-hat. Chains of fewer than 16 draws are laid end to end for the ESS, where
    cycles that differ show as autocorrelation. With few draws the worst of many functions is bad
    by chance: look at the median.

    Args:
        chains: Predictions of each chain (or cycle), each of shape (draws, …), in order.
        max_functions: At most this many of the predicted numbers are used, evenly spaced.

    >>> g = np.random.default_rng(0)
    >>> result = mixing([g.normal(size=(100, 3)) for _ in range(4)])
    >>> result.ess[0] > 200, result.rhat[0] < 1.05
    (True, True)
    >>> print(mixing([np.eye(3)]).notes[0])
    3 draws are too few for an ESS: at least 12 are needed
    """
    check_count("max_functions", max_functions)
    flat = [np.asarray(chain, dtype=np.float64).reshape(len(chain), -1) for chain in chains]
    flat = [chain for chain in flat if len(chain)]
    if not flat:
        raise ConfigError("chains must hold at least one draw, got none; collect samples first")
    _check_finite(flat)
    columns, notes = _columns(flat, max_functions)
    flat = [chain[:, columns] for chain in flat]
    draws = sum(map(len, flat))
    ess, rhat = _summary("ess", flat, notes), _summary("rhat", flat, notes)
    return Mixing(draws, len(flat), len(columns), ess, rhat, tuple(notes))


def _check_finite(flat: list[Array]) -> None:
    widths = sorted({chain.shape[1] for chain in flat})
    if len(widths) != 1:
        raise ConfigError(f"chains must predict the same numbers, got {widths} numbers per draw")
    bad = sum(int((~np.isfinite(chain)).any(axis=1).sum()) for chain in flat)
    if bad:
        raise ConfigError(f"predictions must be finite, got {bad} draws with NaN or infinity")


def _columns(flat: list[Array], most: int) -> tuple[NDArray[np.intp], list[str]]:
    """Evenly spaced numbers that vary over the draws, and notes on those that do not mix at all."""
    varies = np.ptp(np.concatenate(flat), axis=0) > 0
    moves = np.any([np.ptp(chain, axis=0) > 0 for chain in flat], axis=0)
    stuck = int((varies & ~moves).sum())
    notes = []
    if stuck and max(map(len, flat)) > 1:
        notes.append(
            f"{stuck} of {len(varies)} predictions stand still within every chain and differ "
            f"between chains: R-hat is infinite there"
        )
    if not varies.any() and sum(map(len, flat)) >= LEAST:
        notes.append("all draws predict the same: nothing can be said about mixing")
    alive = np.flatnonzero(varies)
    return alive[np.linspace(0, len(alive) - 1, min(most, len(alive))).astype(np.intp)], notes


def _summary(what: str, flat: list[Array], notes: list[str]) -> tuple[float, float] | None:
    """Worst and median of a statistic over functions, or None with a note why not."""
    stacked = _stack_for(what, flat, notes)
    if stacked is None or not stacked.shape[2]:
        return None
    try:
        stats: Any = import_module("arviz_stats.base").array_stats
    except ImportError:
        notes.append(f"{what} needs arviz-stats: pip install arviz-stats")
        return None
    with np.errstate(all="ignore"):  # functions that stand still divide 0 by 0
        if what == "ess":
            ess = stats.ess(stacked, chain_axis=0, draw_axis=1, method="mean")
            values = np.minimum(ess, stacked.shape[0] * stacked.shape[1])
        else:
            values = stats.rhat(stacked, chain_axis=0, draw_axis=1, method="rank")
    values = values[np.isfinite(values)]
    if not len(values):
        notes.append(f"no {what}: no prediction varies within the chains")
        return None
    return float((np.min if what == "ess" else np.max)(values)), float(np.median(values))


def _stack_for(what: str, flat: list[Array], notes: list[str]) -> Array | None:
    """Draws as (chains, draws, functions), or None with a note why not."""
    shortest, total = min(map(len, flat)), sum(map(len, flat))
    if what == "ess":
        if total < LEAST_ESS:
            notes.append(f"{total} draws are too few for an ESS: at least {LEAST_ESS} are needed")
            return None
        if shortest < LONG:
            return np.concatenate(flat)[None]
    if what == "rhat" and len(flat) == 1 and total >= 2 * LEAST:
        half = total // 2
        return np.stack([flat[0][-2 * half : -half], flat[0][-half:]])
    if shortest < LEAST or (what == "rhat" and len(flat) == 1):
        fewest = f"{shortest} draws" if len(flat) == 1 else f"only {shortest} draws in one of them"
        notes.append(
            f"no R-hat: it needs {LEAST} draws in each of two chains or cycles "
            f"(or {2 * LEAST} in one), and there are {fewest}"
        )
        return None
    return np.stack([chain[-shortest:] for chain in flat])

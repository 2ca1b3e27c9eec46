"""How many effectively different networks a run has kept, in numbers and words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from entropy_mcmc.diagnostics import EffectiveNetworks, effective_networks
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.report.figures.svg import number
from entropy_mcmc.report.page_predictions import Classified
from entropy_mcmc.report.run_data import RunData


@dataclass(frozen=True)
class Different:
    """K of the run's samples, and what was compared.

    Attributes:
        networks: K; None where there is nothing to compare.
        compared: "chains", "replicas" or "cycles".
        samples: Number of samples.
        parts: Number of chains, replicas or cycles; the guide of replicas is none of them.
    """

    networks: EffectiveNetworks | None
    compared: str
    samples: int
    parts: int = 0


def effectively_different(run: RunData) -> Different | None:
    """K from chains, or from replicas or cycles as an upper bound; None for a single network."""
    if run.predicted is None or len(run.predicted.roles) < 2:
        return None
    values = run.predicted.each if isinstance(run.predicted, Classified) else run.predicted.means
    if len(run.samples) != len(values):
        return None
    for compared, label in LABELS.items():
        labels = [label(sample) for sample in run.samples]
        networks = effective_networks(values, labels)
        if networks is not None:
            parts = {own for own in labels if compared != "replicas" or own[1] is not None}
            return Different(networks, compared, len(values), len(parts))
    return Different(None, "", len(values))


def _chain(sample: Sample) -> tuple[Any, ...]:
    return (sample.chain_and_step[0],)


# What may be compared, the most independent first, and the part that a sample is of.
LABELS: dict[str, Callable[[Sample], tuple[Any, ...]]] = {
    "chains": _chain,
    "replicas": lambda sample: (*_chain(sample), sample.replica),
    "cycles": lambda sample: (*_chain(sample), sample.cycle),
}


def in_words(told: Different) -> str:
    """A sentence."""
    if told.networks is None:
        return (
            f"How many of the {told.samples} networks are effectively different is not known: one "
            "chain of one cycle has nothing to compare them with (use --chains 2)."
        )
    part = told.compared.removesuffix("s")
    if told.networks.chains == told.samples:
        own = f"The {told.samples} networks are each of a {part} of its own"
        if told.compared == "chains":
            return f"{own}: they count as independent."
        if told.compared == "replicas":
            return f"{own}: they share a guide, so that they count as less than independent."
        return f"{own}; how independent these are is not known (--chains 2 measures it)."
    most = "about" if told.compared == "chains" else "at most"
    return (
        f"The {told.samples} networks are worth {most} {number(told.networks.value, 2)} "
        f"independent ones: predictions within a {part} have correlation "
        f"{number(told.networks.correlation, 2)}, {_reservation(told)}."
    )


def _reservation(told: Different) -> str:
    """What the correlation was measured against, and what that leaves open."""
    if told.compared == "chains":
        return f"measured between {told.parts} chains"
    if told.compared == "replicas":
        return f"measured between {told.parts} replicas, which share a guide"
    return "if cycles were independent (--chains 2 measures it)"


def tile(told: Different) -> tuple[str, str, str]:
    """Name, value and remark for the page's tiles."""
    name = "effectively different networks"
    if told.networks is None:
        return name, "unknown", f"of {told.samples}, one chain of one cycle"
    most = "" if told.compared == "chains" else "≤ "
    beside = f"of {told.samples}, from {told.parts} {told.compared}"
    return name, f"{most}{number(told.networks.value, 2)}", beside

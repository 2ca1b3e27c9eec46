"""How many effectively different networks a run has kept, in numbers and words."""

from __future__ import annotations

from dataclasses import dataclass

from entropy_mcmc.diagnostics import EffectiveNetworks, effective_networks
from entropy_mcmc.report.figures.svg import number
from entropy_mcmc.report.page_predictions import Classified
from entropy_mcmc.report.run_data import RunData


@dataclass(frozen=True)
class Different:
    """K of the run's samples, and what was compared: "chains" or "cycles"; None for neither."""

    networks: EffectiveNetworks | None
    compared: str
    samples: int


def effectively_different(run: RunData) -> Different | None:
    """K from chains, or from cycles as an upper bound; None for a single network."""
    if run.predicted is None or len(run.predicted.roles) < 2:
        return None
    values = run.predicted.each if isinstance(run.predicted, Classified) else run.predicted.means
    if len(run.samples) != len(values):
        return None
    chains = [sample.chain_and_step[0] for sample in run.samples]
    cycles = [(chain, sample.cycle) for chain, sample in zip(chains, run.samples, strict=True)]
    for compared, labels in (("chains", chains), ("cycles", cycles)):
        networks = effective_networks(values, labels)
        if networks is not None:
            return Different(networks, compared, len(values))
    return Different(None, "", len(values))


def in_words(told: Different) -> str:
    """A sentence."""
    if told.networks is None:
        return (
            f"How many of the {told.samples} networks are effectively different is not known: one "
            "chain of one cycle has nothing to compare them with (use --chains 2)."
        )
    if told.networks.chains == told.samples:
        part = told.compared.removesuffix("s")
        own = f"The {told.samples} networks are each of a {part} of its own"
        if told.compared == "chains":
            return f"{own}: they count as independent."
        return f"{own}; how independent these are is not known (--chains 2 measures it)."
    count = number(told.networks.value, 2)
    if told.compared == "chains":
        return (
            f"The {told.samples} networks are worth about {count} independent ones: predictions "
            f"within a chain have correlation {number(told.networks.correlation, 2)}, measured "
            f"between {told.networks.chains} chains."
        )
    return (
        f"The {told.samples} networks are worth at most {count} independent ones: predictions "
        f"within a cycle have correlation {number(told.networks.correlation, 2)}, if cycles were "
        "independent (--chains 2 measures it)."
    )


def tile(told: Different) -> tuple[str, str, str]:
    """Name, value and remark for the page's tiles."""
    name = "effectively different networks"
    if told.networks is None:
        return name, "unknown", f"of {told.samples}, one chain of one cycle"
    most = "" if told.compared == "chains" else "≤ "
    beside = f"of {told.samples}, from {told.networks.chains} {told.compared}"
    return name, f"{most}{number(told.networks.value, 2)}", beside

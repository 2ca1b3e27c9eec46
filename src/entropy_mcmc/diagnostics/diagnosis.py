"""Everything that can be said about a finished run, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from entropy_mcmc.diagnostics import verdicts
from entropy_mcmc.diagnostics.agreement import Agreement, agreements
from entropy_mcmc.diagnostics.distances import (
    Contrast,
    constant_samples,
    moved_probability,
    prediction_distances,
    relative_movement,
    weight_distances,
)
from entropy_mcmc.diagnostics.ess_rhat import Mixing, mixing
from entropy_mcmc.diagnostics.gradient_noise import Estimate
from entropy_mcmc.diagnostics.pair_temperature import PairTemperature
from entropy_mcmc.diagnostics.temperature_verdict import Verdict, average, independent, judge
from entropy_mcmc.diagnostics.thermometer import Thermometer
from entropy_mcmc.diagnostics.verdicts import Advice
from entropy_mcmc.errors import StateError

CLASSES = "share of inputs with another class"
MEANS = "root mean square difference of means"


class Samples(Protocol):
    """What is read of a `Posterior`."""

    model: Any

    @property
    def likelihood(self) -> str:
        """Kind of predictions."""

    @property
    def samples(self) -> Sequence[Any]:
        """Entries with role, step and cycle, and the replica where there are several."""

    def __getitem__(self, index: int) -> dict[str, Tensor]: ...

    def sample_predictions(self, x: Any, *, roles: str, batch_size: int) -> Tensor:
        """Each sample's prediction."""


@dataclass(frozen=True)
class RoleDiagnosis:
    """Samples of one role: mixing of predictions, distances of weights and predictions.

    Attributes:
        role: "theta" or "guide".
        mixing: ESS and R-hat of predictions, by cycles, of each replica where there are several.
        weights: Distances of weights.
        predictions: Distances of predictions; `compared` says which.
        compared: What the distance of predictions is.
        agreements: Tests whether chains and cycles (or halves) predict alike.
        moved: Predicted probability that moves between two samples of a cycle.
        constant: Share of the samples that predict the same for all inputs.
        replicas: Networks that share a guide, each with cycles of its own; 1 without replicas.
    """

    role: str
    mixing: Mixing
    weights: Contrast
    predictions: Contrast
    compared: str
    agreements: tuple[Agreement, ...] = ()
    moved: float | None = None
    constant: float = 0.0
    replicas: int = 1


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found; `print` it for a table.

    Attributes:
        temperature: T that the chain claims, None where it is not known.
        measured: T that the coupling thermometer showed, over all readings.
        verdict: On these readings, None where there are none.
        roles: One entry for each role that has samples.
        advice: Findings and remedies, the gravest first.
        theta_temperature: θ's own temperature from pairs of samples, None where it was not read.
        movement: How far the samples of each chain are apart, over the size of the weights.
    """

    temperature: float | None
    measured: Estimate | None
    verdict: Verdict | None
    roles: tuple[RoleDiagnosis, ...]
    advice: tuple[Advice, ...]
    theta_temperature: PairTemperature | None = None
    movement: dict[str, float] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """The gravest of the advice."""
        return verdicts.worst(self.advice)

    def __str__(self) -> str:
        rows = []
        if self.measured is not None:
            rows.append(("temperature", f"{self.measured} measured, {self.temperature:.4g} set"))
        if self.theta_temperature is not None:
            pair = self.theta_temperature
            rows.append(("of θ itself", f"{pair.reading} from {pair.cost}"))
        for entry in self.roles:
            rows.append((entry.role, entry.mixing.brief("cycles", entry.replicas)))
            rows.append(("  weights", f"distance {entry.weights}"))
            rows.append(("  predictions", f"{entry.compared} {entry.predictions}"))
        rows += [(f"[{item.severity}]", item.sentence) for item in self.advice]
        return "\n".join(["Diagnosis", *(_wrapped(*row) for row in rows)])


def _wrapped(label: str, text: str) -> str:
    return fill(text, 100, initial_indent=f"  {label:<15}", subsequent_indent=" " * 17)


def diagnose(
    posterior: Samples | Sequence[Samples],
    x: Any,
    *,
    thermometer: Thermometer | Sequence[Thermometer] | None = None,
    gradient_variance: Estimate | float | None = None,
    theta_temperature: PairTemperature | None = None,
    temperature: float | None = None,
    batch_size: int = 256,
    chain_of: Callable[[Any], Any] | None = None,
    clipped: float | None = None,
) -> Diagnosis:
    """Is the chain at its temperature, has it mixed, how far apart are its samples?

    Args:
        posterior: A `Posterior`, or several of the same model (chains).
        x: Inputs on which predictions are compared; a few hundred rows are enough.
        thermometer: The one that followed the run, with its readings; one for each chain.
        gradient_variance: V of `gradient_variance`, to tell mini-batch heat apart.
        theta_temperature: Of `read_pair_temperature`, to see whether lr is too large.
        temperature: T that the chain claims, where no thermometer knows it.
        batch_size: Rows at a time.
        chain_of: Entry of `posterior.samples` → its chain, for a store that holds several; by
            default a new chain begins where the number of the cycle falls. Replicas of a chain
            are told apart in either case, and compared as chains are.
        clipped: Share of the noisy steps whose gradient was clipped, if that was counted.
    """
    chains = _chains(posterior)
    roles = tuple(
        _diagnose_role(role, chains, x, batch_size, chain_of)
        for role in ("theta", "guide")
        if any(sample.role == role for chain in chains for sample in chain.samples)
    )
    if not roles:
        raise StateError("the posterior has no samples to diagnose; collect some first")
    followed = _thermometers(thermometer)
    readings = independent([t.readings for t in followed])
    measured = verdict = None
    # Chains of a run share their settings: what is said of all is said once.
    advice = list(dict.fromkeys(item for t in followed for item in verdicts.on_coupling(t)))
    if readings:
        temperature = readings[-1].temperature
        ratio, error = average(readings)
        measured = Estimate(temperature * ratio, temperature * error)
        verdict = judge(readings, gradient_variance)
        advice += verdicts.on_temperature(verdict, temperature)
    movement = _movement(roles[0].role, chains, chain_of)
    advice += verdicts.on_theta(theta_temperature, temperature)
    advice += verdicts.on_cold_target(temperature)
    advice += verdicts.on_clipping(clipped)
    advice += verdicts.on_standing(movement)
    advice += verdicts.on_constant_predictions(roles)
    advice += verdicts.on_agreement(roles) + verdicts.on_ess(roles)
    advice += verdicts.on_copies(roles, theta_temperature, temperature)
    advice += verdicts.on_notes(roles)
    advice.sort(key=lambda item: -verdicts.SEVERITIES.index(item.severity))
    return Diagnosis(
        temperature, measured, verdict, roles, tuple(advice), theta_temperature, movement
    )


def _thermometers(given: Thermometer | Sequence[Thermometer] | None) -> list[Thermometer]:
    if given is None:
        return []
    return [given] if isinstance(given, Thermometer) else list(given)


def _chains(posterior: Samples | Sequence[Samples]) -> list[Samples]:
    several = isinstance(posterior, list | tuple)
    return list(cast(Sequence[Samples], posterior)) if several else [cast(Samples, posterior)]


def _diagnose_role(
    role: str,
    chains: list[Samples],
    x: Any,
    batch_size: int,
    chain_of: Callable[[Any], Any] | None,
) -> RoleDiagnosis:
    predicted, cycles = [], []
    replicas: set[Any] = set()
    for number, chain in enumerate(chains):
        own = [sample for sample in chain.samples if sample.role == role]
        if not own:
            continue
        values = chain.sample_predictions(x, roles=role, batch_size=batch_size)
        if len(values) != len(own):
            raise StateError(
                f"{len(values)} of {len(own)} samples could be read, so that they have lost their "
                f"cycles; restore the damaged files, or delete them from the store"
            )
        # A regression predicts (mean, variance): the mean is the function that is compared.
        regression = chain.likelihood == "regression" and values.ndim == 3
        predicted.append(values[..., 0] if regression else values)
        cycles.append([(number, *label) for label in _labels(own, chain_of)])
        replicas |= {_replica_of(sample) for sample in own}
    groups = [part for pair in zip(predicted, cycles, strict=True) for part in _split(*pair)]
    labels = [label for own in cycles for label in own]
    together = torch.cat(predicted)
    return RoleDiagnosis(
        role,
        mixing(groups),
        weight_distances(_by_cycle(role, chains, cycles)),
        prediction_distances(together, labels),
        CLASSES if together.ndim == 3 else MEANS,
        _named(agreements(together, labels), len(replicas)),
        moved_probability(together, labels),
        len(constant_samples(together)) / len(together),
        len(replicas),
    )


def _named(tests: tuple[Agreement, ...], replicas: int) -> tuple[Agreement, ...]:
    """The tests, with replicas called so where they take the place of chains."""
    if replicas == 1:
        return tests
    return tuple(replace(t, groups="replicas") if t.groups == "chains" else t for t in tests)


def _movement(
    role: str, chains: list[Samples], chain_of: Callable[[Any], Any] | None
) -> dict[str, float]:
    """Relative movement of each chain by its name, such as "chain 0" or "replica 1 of chain 0"."""
    labels = [
        (number, chain, replica)
        for number, store in enumerate(chains)
        for chain, replica, _ in _labels([s for s in store.samples if s.role == role], chain_of)
    ]
    movement = relative_movement(zip(labels, _weights(role, chains), strict=True))
    whole = dict.fromkeys((number, chain) for number, chain, _ in labels)
    names = {each: f"chain {i}" for i, each in enumerate(whole)}
    return {_name(names[label[:2]], label[2]): share for label, share in movement.items()}


def _name(chain: str, replica: int | None) -> str:
    return chain if replica is None else f"replica {replica} of {chain}"


def _split(values: Tensor, cycles: list[Any]) -> Iterator[Any]:
    """Predictions of each cycle, in order, as arrays."""
    for cycle in dict.fromkeys(cycles):
        rows = [i for i, label in enumerate(cycles) if label == cycle]
        yield values[rows].double().cpu().numpy()


def _labels(
    samples: list[Any], chain_of: Callable[[Any], Any] | None
) -> list[tuple[Any, Any, Any]]:
    """(chain, replica, cycle) of each sample of one store, in its order."""
    chains = [chain_of(s) for s in samples] if chain_of else _counted_chains(samples)
    pairs = zip(chains, samples, strict=True)
    return [(chain, _replica_of(sample), sample.cycle) for chain, sample in pairs]


def _counted_chains(samples: list[Any]) -> list[int]:
    """The chain of each sample: a new one begins where the number of the cycle falls."""
    chain, last, chains = 0, -1, []
    for sample in samples:
        cycle = -1 if sample.cycle is None else sample.cycle
        chain += cycle < last
        last = cycle
        chains.append(chain)
    return chains


def _replica_of(sample: Any) -> int | None:
    """The replica of a sample; None where θ is the only one, and for the guide."""
    replica: int | None = getattr(sample, "replica", None)
    return replica


def _by_cycle(
    role: str, chains: list[Samples], cycles: list[list[Any]]
) -> Iterator[tuple[Any, list[Tensor]]]:
    """(cycle, parameters) of each sample, one cycle after another: replicas take turns in a store.

    `cycles` has the labels of each store that has samples of the role.
    """
    stores = [chain for chain in chains if any(s.role == role for s in chain.samples)]
    for store, labels in zip(stores, cycles, strict=True):
        own = [i for i, sample in enumerate(store.samples) if sample.role == role]
        for cycle in dict.fromkeys(labels):
            for index, label in zip(own, labels, strict=True):
                if label == cycle:
                    yield cycle, _parameters(store, index)


def _weights(role: str, chains: list[Samples]) -> Iterator[list[Tensor]]:
    """Parameters of each sample of a role."""
    for chain in chains:
        for index, sample in enumerate(chain.samples):
            if sample.role == role:
                yield _parameters(chain, index)


def _parameters(store: Samples, index: int) -> list[Tensor]:
    """Parameters of a sample; buffers such as batch-norm statistics are left out."""
    buffers = [name for name, _ in store.model.named_buffers()]
    return [
        value
        for name, value in sorted(store[index].items())
        if not any(b == name or b.endswith(f".{name}") for b in buffers)
    ]

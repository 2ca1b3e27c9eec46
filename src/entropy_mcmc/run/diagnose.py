"""After a run: is it at its temperature, has it mixed? Printed, and kept in `diagnostics.json`."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.data import Dataset
from entropy_mcmc.diagnostics import (
    Diagnosis,
    Estimate,
    PairTemperature,
    Thermometer,
    diagnose,
    gradient_variance,
    read_pair_temperature,
)
from entropy_mcmc.errors import StateError
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc.posterior.manifest import Sample, stored_step
from entropy_mcmc.run.checkpoint import explained, newest_step, read_meta
from entropy_mcmc.run.devices import DOUBLE, cast
from entropy_mcmc.run.evaluate import compared_samples
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.methods import METHODS, gradients_per_step, weight_decays
from entropy_mcmc.run.runner import Run

NAME = "diagnostics.json"
ROWS = 100  # inputs on which predictions are compared
PAIRS = 8  # samples at which two mini-batch gradients are taken, for their variance
# Parameters times batch size above which these gradients would take longer than a few seconds.
AFFORDABLE = 10**8
SAMPLES = 16  # samples of θ at which its own temperature is read
BATCHES = 16  # mini-batch gradients at each of them, fewer for large networks
ONE_NETWORK = "one network: there is nothing to diagnose"


def diagnose_run(run: Run) -> str:
    """Diagnose the samples of a run, write `diagnostics.json`, and return the text to show."""
    diagnosis = diagnosis_of(run)
    text = ONE_NETWORK if diagnosis is None else str(diagnosis)
    content: dict[str, Any] = {"text": text, "samples": len(run.posterior), "severity": "ok"}
    if diagnosis is not None:
        content |= {"severity": diagnosis.severity, **asdict(diagnosis)}
    with explained(run.folder), atomic(run.folder / NAME) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return text


def diagnosis_of(run: Run) -> Diagnosis | None:
    """The diagnosis of a run's samples; None for one network."""
    if len(run.posterior) < 2:
        return None
    followed = thermometers(run.folder)
    samples, inputs = compared_samples(run) or (run.posterior, inputs_of(run))
    return diagnose(
        samples,
        inputs,
        thermometer=list(followed.values()),
        gradient_variance=_variance(run, _read(run, followed)),
        theta_temperature=theta_temperature(run),
        temperature=_claimed(run),
        chain_of=_chain_of,
        clipped=_clipping(run),
    )


def _chain_of(sample: Sample) -> int:
    """The chain of a sample; `diagnose` tells the replicas of a chain apart."""
    return sample.chain_and_step[0]


def _claimed(run: Run) -> float | None:
    """T of the posterior that the method samples; None where it samples none."""
    config = run.record.config
    return config.sampler.temperature if METHODS[config.method].samples_posterior else None


def theta_temperature(run: Run) -> PairTemperature | None:
    """θ's own temperature from mini-batches that the run has not seen; None if it would take long.

    At most 16 samples × 16 gradients in the mode of training, fewer for large networks.
    """
    # Replicas are drawn from exp(−U/T) times their coupling, which the reading would miss.
    if not _claimed(run) or not _affordable(run) or run.record.config.replicas > 1:
        return None
    source, config = run.problem.source, run.record.config
    size = _parameters(run) * config.data.batch_size
    count = max(2, min(BATCHES, source.steps, AFFORDABLE // size))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # dropout
        try:
            return read_pair_temperature(
                run.posterior,
                run.problem.loss,
                _fresh_batches(run),
                num_data=run.problem.num_data,
                weight_decay=weight_decays(config, run.problem.model, run.problem.num_data),
                per_sample=count,
                most=SAMPLES,
                chain_of=_chain_of,
            )
        except StateError:  # too few samples of θ
            return None


def _fresh_batches(run: Run) -> Iterator[tuple[Any, Any]]:
    """Mini-batches of epochs after the run's end: their order is independent of the samples."""
    device = next(run.problem.model.parameters()).device
    step = run.record.cycle_steps * run.record.cycles * gradients_per_step(run.record.config)
    step += -step % run.problem.source.steps
    while True:
        inputs, targets = (_cast(run, part) for part in run.problem.source.micro(step, 0, 1))
        yield _to(inputs, device), _to(targets, device)
        step += 1


def _clipping(run: Run) -> float | None:
    """Share of the noisy steps whose gradient was clipped, over all chains; None without any."""
    events = [e for e in Journal(run.folder).events() if e["kind"] == "train"]
    last = {e["chain"]: e["clipped"] for e in events if "clipped" in e}
    return sum(last.values()) / len(last) if last else None


def thermometers(folder: Path) -> dict[int, Thermometer]:
    """The thermometer of each chain, as its newest checkpoint left it; none without a guide."""
    followed = {}
    for chain in sorted((folder / "checkpoint").glob("chain-*")):
        meta = chain / f"{newest_step(chain):012d}.json"
        if not meta.exists():
            continue
        numbers = read_meta(meta)["numbers"]
        if "thermometer" in numbers:
            thermometer = Thermometer(SimpleNamespace(param_groups=numbers["groups"]))
            thermometer.load_state_dict(numbers["thermometer"])
            followed[int(chain.name.removeprefix("chain-"))] = thermometer
    return dict(sorted(followed.items()))


def _read(run: Run, followed: dict[int, Thermometer]) -> list[int]:
    """Samples, one role of each step, at which a thermometer was read; a few, evenly spaced."""
    steps = {stored_step(c, r.step) for c, t in followed.items() for r in t.readings}
    samples = run.posterior.samples
    read = [i for i, s in enumerate(samples) if s.step in steps and s.role == samples[0].role]
    count = min(PAIRS, len(read))
    return [read[i] for i in torch.linspace(0, len(read) - 1, count).long()] if read else []


def inputs_of(run: Run, rows: int = ROWS) -> Any:
    """A fixed small set of inputs: of the test set if it is in memory, else of the training set."""
    part = run.problem.test if isinstance(run.problem.test, Dataset) else run.problem.train
    if isinstance(part, Dataset) and isinstance(run.problem.train, Dataset):
        spaced = torch.linspace(0, len(part) - 1, min(rows, len(part))).long()
        return _cast(run, run.problem.train.normalise(part.inputs[spaced]))
    inputs, _ = run.problem.source.micro(0, 0, 1)
    return _cast(run, inputs[:rows] if isinstance(inputs, Tensor) else inputs)


def _cast(run: Run, inputs: Any) -> Any:
    # Predictions are made in float32 but for a double-precision run, whatever the chain used.
    precision = run.record.config.compute.precision
    return cast(inputs, precision) if precision == DOUBLE else inputs


def _parameters(run: Run) -> int:
    return sum(p.numel() for p in run.problem.model.parameters() if p.requires_grad)


def _affordable(run: Run) -> bool:
    return _parameters(run) * run.record.config.data.batch_size <= AFFORDABLE


def _variance(run: Run, samples: list[int]) -> Estimate | None:
    """V of the mini-batch gradients, on average over the samples; None if it would take long."""
    if not samples or not _affordable(run):
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # dropout
        return gradient_variance(_gradients(run, samples), run.problem.num_data)


def _gradients(run: Run, samples: list[int]) -> Iterator[list[Tensor]]:
    """Two mini-batch gradients at each sample, in the mode of training."""
    model = copy.deepcopy(run.problem.model).train()
    params = [p for p in model.parameters() if p.requires_grad]
    source, device = run.problem.source, params[0].device
    # One sample is visited twice, so that there is an error.
    for number, sample in enumerate(samples if len(samples) > 1 else 2 * samples):
        run.posterior.load(sample, model)
        for step in (2 * number, 2 * number + 1):
            inputs, targets = (_to(_cast(run, part), device) for part in source.micro(step, 0, 1))
            loss = run.problem.loss(model(inputs), targets)
            grads = torch.autograd.grad(loss, params)
            yield _clipped(grads, run.record.config.sampler.clip_norm)


def _clipped(grads: tuple[Tensor, ...], limit: float | None) -> list[Tensor]:
    if limit is None:
        return list(grads)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    return [g * (limit / norm).clamp(max=1.0) for g in grads]


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {name: _to(part, device) for name, part in value.items()}
    return value.to(device) if isinstance(value, Tensor) else value

"""All scores of one finished run, as plain JSON: test, other data, corruptions, flatness."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entropy_mcmc import data as data_sets
from entropy_mcmc import flatness, metrics
from entropy_mcmc.data import Dataset
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.posterior.batchnorm import refresh_batchnorm
from entropy_mcmc.run.model_and_data import Problem
from entropy_mcmc_reproduction.pictures import strange

Array = NDArray[np.float64]
ROLES = ("theta", "guide")
BATCH = 64  # pictures at a time: their activations stay in a CPU's cache


def scores(probs: Array, targets: Tensor) -> dict[str, float]:
    """Accuracy, NLL, Brier, both ECE forms, and detection of misclassified pictures."""
    found = metrics.summary(probs, targets)
    found["ece_equal_mass"] = metrics.ece(probs, targets, 10, "mass")
    if 0.0 < found["accuracy"] < 1.0:
        found["misclassification_auroc"] = metrics.misclassification_auroc(probs, targets)
    return {name: float(value) for name, value in found.items()}


def predictions(posterior: Posterior, inputs: Tensor) -> Array:
    """Probabilities (samples, rows, classes)."""
    pictures = inputs.contiguous(memory_format=torch.channels_last)  # faster convolutions
    return np.asarray(posterior.sample_predictions(pictures, batch_size=BATCH).double())


def of_test(posterior: Posterior, each: Array, targets: Tensor) -> dict[str, Any]:
    """Scores of the whole posterior, of each role, and of the last sample alone."""
    roles = np.array(posterior.roles)
    found: dict[str, Any] = {"both": scores(each.mean(0), targets), "samples": len(roles)}
    for role in ROLES:
        chosen = each[roles == role]
        if len(chosen):
            found[role] = scores(chosen.mean(0), targets)
            found[f"last_{role}"] = scores(chosen[-1], targets)
    return found


def of_borrowed_statistics(
    posterior: Posterior, inputs: Tensor, targets: Tensor
) -> dict[str, float] | None:
    """Scores when each guide predicts with the batch-norm statistics of its θ, not its own."""
    place = {(sample.step, sample.role): i for i, sample in enumerate(posterior.samples)}
    pairs = [(i, place[step, "theta"]) for (step, role), i in place.items() if role == "guide"]
    if not pairs:
        return None
    model = posterior.model.eval()
    trained = {name for name, _ in model.named_parameters()}
    total = torch.zeros(())
    for guide, theta in pairs:
        borrowed = {n: v for n, v in posterior[theta].items() if n not in trained}
        model.load_state_dict({**posterior[guide], **borrowed})
        for chosen in (guide, theta):
            if chosen == theta:
                posterior.load(theta)
            with torch.no_grad():
                parts = [model(part).softmax(1) for part in torch.split(inputs, 256)]
            total = total + torch.cat(parts).double()
    return scores(np.asarray(total / (2 * len(pairs))), targets)


def of_other_data(
    posterior: Posterior, problem: Problem, known: Array, names: list[str], folder: str | None
) -> dict[str, Any]:
    """Detection of out-of-distribution pictures by predictive entropy; they are the positives."""
    inside = metrics.predictive_entropy(known.mean(0))
    found = {}
    for name in names:
        other = strange(name, problem.test, folder)
        probs = predictions(posterior, problem.train.normalise(other)).mean(0)
        outside = metrics.predictive_entropy(probs)
        found[name] = {
            "auroc": metrics.auroc(inside, outside),
            "aupr": metrics.aupr(inside, outside),
            "aupr_in": metrics.aupr(inside, outside, positive="in"),
            "fpr95": metrics.fpr95(inside, outside),
            "pictures": len(other),
        }
    return found


def of_corruptions(
    posterior: Posterior, problem: Problem, rows: int, types: list[str] | None, levels: list[int]
) -> dict[str, Any]:
    """Accuracy and NLL by type and severity, on the first `rows` test pictures."""
    test: Dataset = problem.test.take(rows)
    found: dict[str, Any] = {}
    for name in types or data_sets.corruption_names():
        for severity in levels:
            changed = problem.train.normalise(data_sets.corrupt(test.inputs, name, severity))
            probs = predictions(posterior, changed).mean(0)
            found.setdefault(name, {})[str(severity)] = {
                "accuracy": float(metrics.accuracy(probs, test.targets)),
                "nll": float(metrics.nll(probs, test.targets)),
            }
    return found


def of_flatness(posterior: Posterior, problem: Problem, chosen: dict[str, Any]) -> dict[str, Any]:
    """Fisher, Hessian, sharpness and interpolation of the last θ and the last guide."""
    train = problem.train.normalise(problem.train.inputs), problem.train.targets
    test_set = problem.test.take(chosen["test_rows"])
    test = problem.train.normalise(test_set.inputs), test_set.targets
    last = {role: index for index, role in enumerate(posterior.roles)}
    states = {role: posterior[index] for role, index in last.items()}
    small = flatness.subset(train, min(chosen["subset"], len(train[0])))
    settings = flatness.Settings(**chosen["settings"])
    compared = flatness.compare(
        problem.model, problem.loss, train, states, hessian_data=small, test=test, settings=settings
    )
    found: dict[str, Any] = {}
    for row in compared.records():
        role = str(row.pop("name"))
        found[role] = {**row, **_curves(compared.measured[role])}
    if "guide" in states:
        line = flatness.interpolate_between(
            problem.model,
            problem.loss,
            small,
            states["theta"],
            states["guide"],
            test=test,
            refresh=lambda model: refresh_batchnorm(model, [small[0]]),
        )
        found["between"] = _line(line)
    return found


def _curves(measured: Any) -> dict[str, Any]:
    variance = measured.fisher.variance.double()
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95, 0.99], dtype=torch.float64)
    edges = np.linspace(-12.0, 2.0, 57)
    logs = np.log10(np.asarray(variance.clamp_min(1e-12)))
    return {
        "fisher_quantiles": torch.quantile(variance, levels).tolist(),
        "fisher_log10_edges": edges.tolist(),
        "fisher_counts": np.histogram(logs.clip(-12.0, 2.0), edges)[0].tolist(),
        "eigenvalues": [float(v) for v in measured.eigenvalues],
        "interpolation": _line(measured.interpolation),
    }


def _line(line: flatness.Interpolation) -> dict[str, Any]:
    return {
        "distances": np.asarray(line.distances).tolist(),
        "loss": np.asarray(line.loss).tolist(),
        "error": None if line.error is None else np.asarray(line.error).tolist(),
        "batchnorm": line.batchnorm,
    }


def of_diagnosis(folder: Any) -> dict[str, Any] | None:
    """The run engine's diagnosis of mixing and temperature."""
    path = folder / "diagnostics.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found

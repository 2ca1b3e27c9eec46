"""Chains in one stack are the chains one after another, number by number."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness import learning_coefficient
from entropy_mcmc.flatness.learning_coefficient import estimate

SAMPLING = flatness.LocalSampling(localisation=50.0, lr=0.02, steps=60, chains=3, batch_size=16)


def flat_inputs():
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))


def with_norm():
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)
    )
    model(torch.randn(30, 5))  # in training mode: statistics differ from (0, 1)
    return model


def frozen():
    model = nn.Sequential(nn.Linear(5, 6), nn.SiLU(), nn.Linear(6, 3, bias=False))
    model[0].weight.requires_grad_(False)
    return model


def problem(make, rows=70):
    torch.manual_seed(0)
    model = make().double()
    return model, F.cross_entropy, (torch.randn(rows, 5).double(), torch.randint(0, 3, (rows,)))


def both(args, sampling):
    return [estimate(*args, replace(sampling, stacked=stacked)) for stacked in (False, True)]


def assert_same(alone, stacked, tolerance=1e-10):
    """All readings of `LearningCoefficient`; the sums of batched products round differently."""
    names = (
        "value",
        "standard_error",
        "rhat",
        "ess",
        "measured_temperature",
        "counted_temperature",
    )
    for name in names:
        got, expected = getattr(stacked, name), getattr(alone, name)
        assert got == pytest.approx(expected, rel=tolerance, nan_ok=True), name
    assert stacked.chain_values == pytest.approx(alone.chain_values, rel=tolerance, nan_ok=True)
    assert len(stacked.warnings) == len(alone.warnings)


@pytest.mark.parametrize("make", [flat_inputs, with_norm, frozen])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": None},
        {"scale": "rms", "lr": "auto"},
        {"scale": "weight", "chains": 1},
        {"batch_size": 64},  # of 70 rows: some chains have 64 of them, some 6
    ],
    ids=str,
)
def test_a_stack_has_the_numbers_of_single_chains(make, changes, unchanged):
    args = problem(make)
    unchanged(args[0])
    assert_same(*both(args, replace(SAMPLING, **changes)))


def test_batches_of_more_rows_than_are_taken_at_once():
    args = problem(flat_inputs, rows=700)
    assert_same(*both(args, replace(SAMPLING, steps=10, batch_size=600)))


def test_a_chain_may_diverge_and_the_others_go_on(monkeypatch):
    """A loss that is infinite beyond a wall, which one chain of three reaches in these steps."""
    monkeypatch.setattr(learning_coefficient, "summarise", lambda traces, *rest: traces)
    model, _, data = problem(flat_inputs)

    def walled(output, target):
        value = F.cross_entropy(output, target)
        return value + torch.where(value > 1.75, torch.inf, 0.0)

    sampling = replace(SAMPLING, lr=0.1, localisation=1.0, burn_in=10)
    alone, stacked = both((model, walled, data), sampling)
    assert 0 < sum(trace.diverged > 0 for trace in alone) < 3
    for one, other in zip(alone, stacked, strict=True):
        assert other.diverged == one.diverged
        for name in ("excess", "distance", "temperature", "counted"):
            assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-10, abs=1e-12)


def test_all_chains_may_diverge():
    model, loss, data = problem(flat_inputs)
    alone, stacked = both((model, loss, data), replace(SAMPLING, lr=1e200))
    assert math.isnan(stacked.value)
    assert stacked.warnings == alone.warnings
    assert "3 of 3 chains diverged" in stacked.warnings[0]


def test_single_precision_agrees_to_its_rounding():
    model, loss, (x, y) = problem(flat_inputs)
    assert_same(*both((model.float(), loss, (x.float(), y)), SAMPLING), tolerance=1e-4)


def test_other_networks_are_refused():
    model = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 5), nn.Flatten())
    with pytest.raises(ConfigError, match=r"stacked=True needs.*got Sequential; use stacked=False"):
        estimate(*problem(lambda: model), replace(SAMPLING, stacked=True))

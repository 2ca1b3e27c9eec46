"""Verdicts in words: what is found is said once, with what to change."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from entropy_mcmc import Posterior
from entropy_mcmc.diagnostics import diagnose, moved_probability, relative_movement
from entropy_mcmc.diagnostics.distances import constant_samples
from entropy_mcmc.diagnostics.thermometer import Thermometer
from entropy_mcmc.diagnostics.verdicts import on_clipping, on_coupling, on_standing

INPUTS = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))


def collected(path, draw, *, cycles=2, each=4, roles=("theta", "guide")):
    """A posterior whose sample of (role, cycle, place) has the weights draw(role, cycle, place)."""
    model = nn.Linear(2, 3)
    posterior = Posterior.create(path, model)
    for cycle in range(cycles):
        for place in range(each):
            with torch.no_grad():
                for param in model.parameters():
                    param.copy_(draw(cycle, place, param.shape))
            posterior.collect(step=cycle * each + place, cycle=cycle)
    return posterior


def texts(diagnosis, severity=None):
    return [a.sentence for a in diagnosis.advice if severity in (None, a.severity)]


def test_near_copies_are_found_without_another_cycle(tmp_path):
    """One cycle of samples 1e-3 apart: there is no other cycle to measure them by."""
    g = torch.Generator().manual_seed(0)
    base = {}

    def near(cycle, place, shape):
        start = base.setdefault(shape, torch.randn(shape, generator=g))
        return start + 1e-3 * torch.randn(shape, generator=g)

    diagnosis = diagnose(collected(tmp_path / "a", near, cycles=1, each=8), INPUTS)
    (said,) = [a for a in diagnosis.advice if "near copies" in a.text]
    assert said.severity == "warning"
    assert "of the predicted probability moves" in said.text
    assert said.change
    far = diagnose(
        collected(tmp_path / "b", lambda c, p, s: torch.randn(s, generator=g), cycles=1, each=8),
        INPUTS,
    )
    assert not any("near copies" in text for text in texts(far))


def test_a_chain_that_never_left_its_start_is_named(tmp_path):
    """The second of three chains stands still; the others move."""
    g = torch.Generator().manual_seed(0)

    def draw(cycle, place, shape):
        return torch.ones(shape) if cycle == 1 else torch.randn(shape, generator=g)

    posterior = collected(tmp_path / "a", draw, cycles=3)
    diagnosis = diagnose(posterior, INPUTS, chain_of=lambda sample: sample.cycle)
    (said,) = [a for a in diagnosis.advice if a.severity == "problem"]
    assert said.text.startswith("chain 1 never left its start")
    assert "raise lr" in said.change
    assert diagnosis.movement["chain 1"] == 0.0
    assert min(diagnosis.movement["chain 0"], diagnosis.movement["chain 2"]) > 0.1
    assert on_standing({"chain 0": 1e-3}) == []


def test_movement_is_relative_to_the_size_of_the_weights():
    """RMS distance of pairs over RMS size, by hand: √2 over √((9+16+25)/3… ) per chain."""
    points = [
        (0, [torch.tensor([3.0, 4.0])]),
        (0, [torch.tensor([3.0, 5.0])]),
        (1, [torch.ones(2)]),
    ]
    size = ((9 + 16 + 9 + 25) / 2) ** 0.5
    assert relative_movement(points) == {0: pytest.approx(1 / size)}


def test_moved_probability_by_hand():
    probs = torch.tensor([[[0.9, 0.1]], [[0.8, 0.2]], [[0.1, 0.9]]])
    assert moved_probability(probs, [0, 0, 1]) == pytest.approx(0.1)
    assert moved_probability(probs, [0, 1, 2]) is None
    means = torch.tensor([[0.0, 2.0], [0.1, 2.1]])
    assert moved_probability(means, [0, 0]) == pytest.approx(0.1)


def test_networks_that_do_not_look_at_their_inputs_are_named(tmp_path):
    """The networks of the second cycle have weights of almost 0, as after an overshoot."""
    g = torch.Generator().manual_seed(0)

    def draw(cycle, place, shape):
        return (1e-3 if cycle else 1.0) * torch.randn(shape, generator=g)

    diagnosis = diagnose(collected(tmp_path / "a", draw), INPUTS)
    (said,) = [a for a in diagnosis.advice if "same for every input" in a.text]
    assert said.severity == "warning"
    assert "50% of the samples" in said.text
    assert "warm_up=0.05" in said.change
    seeing = collected(tmp_path / "b", lambda c, p, s: torch.randn(s, generator=g))
    assert not any("same for every input" in text for text in texts(diagnose(seeing, INPUTS)))


def test_constant_samples_by_hand():
    probs = torch.tensor([[[0.52, 0.48], [0.5, 0.5]], [[0.53, 0.47], [0.5, 0.5]]])
    assert [float((p[0] - p[1]).abs().sum() / 4) for p in probs] == pytest.approx([0.01, 0.015])
    probs[0, 0] = torch.tensor([0.519, 0.481])
    assert constant_samples(probs) == [0]
    assert constant_samples(probs[:, :1]) == []  # one row shows nothing
    assert constant_samples(torch.zeros(2, 5)) == []  # means have no scale of their own


def test_chains_apart_are_a_warning(tmp_path):
    """Five standard deviations: it used to be a note."""
    g = torch.Generator().manual_seed(0)

    def draw(cycle, place, shape):
        return 0.2 * torch.randn(shape, generator=g) + cycle * torch.arange(3.0).reshape(
            3, *[1] * (len(shape) - 1)
        )

    diagnosis = diagnose(
        collected(tmp_path / "a", draw), INPUTS, chain_of=lambda sample: sample.cycle
    )
    (said,) = [a for a in diagnosis.advice if "chains predict differently" in a.text]
    assert said.severity == "warning"
    assert diagnosis.severity == "warning"


def test_every_finding_says_what_to_change(tmp_path):
    g = torch.Generator().manual_seed(0)
    posterior = collected(tmp_path / "a", lambda c, p, s: torch.randn(s, generator=g), each=2)
    diagnosis = diagnose(posterior, INPUTS, temperature=0.1, clipped=0.5)
    assert {a.severity for a in diagnosis.advice} >= {"note", "warning"}
    for item in diagnosis.advice:
        assert bool(item.change) == (item.severity != "ok"), item
    assert on_clipping(0.5)[0].change
    # What is missing for the same reason is one note.
    assert len([a for a in diagnosis.advice if "an ESS" in a.text or "no R-hat" in a.text]) == 1


def test_notes_of_theta_and_guide_are_one(tmp_path):
    from entropy_mcmc import EntropyMCMC

    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    sampler = EntropyMCMC(model.parameters(), lr=0.1, num_data=10, eta=0.1, seed=0)
    posterior = Posterior.create(tmp_path / "a", model)
    thermometer = Thermometer(sampler)
    for step in range(8):
        sampler.zero_grad()
        model(INPUTS).square().mean().backward()
        sampler.step()
        thermometer.step()
        posterior.collect(sampler, cycle=step // 2)
    diagnosis = diagnose(posterior, INPUTS, thermometer=thermometer)
    assert [role.role for role in diagnosis.roles] == ["theta", "guide"]
    starts = [a.text.split(":")[0] for a in diagnosis.advice]
    assert len([s for s in starts if s == "θ and θ_a"]) == 1
    assert not any(text.startswith(("theta:", "guide:")) for text in texts(diagnosis))
    assert all(a.change for a in on_coupling(thermometer))


def test_a_gap_that_swings_too_long_is_not_blamed_on_the_reader():
    """The gap relaxed in time, but momentum let it swing: nobody could have read it."""
    groups = [{"temperature": 0.02, "guide_update": "euler"}]
    made = {"readings": [], "peak_coupling": 0.1, "relaxation": 3.5}
    sampler = SimpleNamespace(param_groups=groups)
    (said,) = on_coupling(SimpleNamespace(sampler=sampler, ready=False, **made))
    assert "swings" in said.text
    assert "thermometer.read()" not in said.change
    (said,) = on_coupling(SimpleNamespace(sampler=sampler, ready=True, **made))
    assert "thermometer.read()" in said.change

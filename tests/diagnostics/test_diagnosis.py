"""The table at the end of a run: from real chains on small networks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from entropy_mcmc import EntropyMCMC, Posterior, schedules
from entropy_mcmc.diagnostics import Advice, Thermometer, diagnose
from entropy_mcmc.diagnostics.verdicts import on_coupling, worst
from entropy_mcmc.errors import StateError


def data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 2, generator=g)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def chain(
    path, *, eta=0.02, temperature=1.0, samples=4, cycles=2, steps=400, seed=0, guide_update="euler"
):
    """A cyclical run of Entropy-MCMC with batch norm, its posterior and its thermometer."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    x, y = data()
    sampler = EntropyMCMC(
        model.parameters(), lr=0.3, num_data=64, eta=eta, temperature=temperature,
        weight_decay=0.01, guide_update=guide_update, seed=seed,
    )  # fmt: skip
    thermometer = Thermometer(sampler)
    cycle = schedules.Cyclical(sampler, steps, cycles, burn_in=0.5, samples_per_cycle=samples)
    posterior = Posterior.create(path, model)
    for step in range(steps):
        loss = F.cross_entropy(model(x), y)
        sampler.zero_grad()
        loss.backward()
        sampler.step()
        thermometer.step()
        if cycle.step():
            posterior.collect(sampler, cycle=cycle.cycle(step))
            if thermometer.ready:
                thermometer.read()
    posterior.refresh_batchnorm([x])
    return posterior, thermometer


def test_a_run_is_diagnosed(tmp_path):
    posterior, thermometer = chain(tmp_path / "a")
    diagnosis = diagnose(posterior, data()[0], thermometer=thermometer)
    assert [role.role for role in diagnosis.roles] == ["theta", "guide"]
    theta = diagnosis.roles[0]
    assert (theta.mixing.draws, theta.mixing.chains) == (8, 2)
    assert theta.mixing.rhat is not None
    # Batch-norm statistics are no weights: the distance is that of the parameters alone.
    names = [name for name, _ in posterior.model.named_parameters()]
    flat = torch.stack(
        [
            torch.cat([posterior[i][name].ravel() for name in names])
            for i, sample in enumerate(posterior.samples)
            if sample.role == "theta"
        ]
    ).double()
    squares = torch.cdist(flat, flat).square()
    within = (squares[:4, :4].sum() + squares[4:, 4:].sum()) / 24
    assert theta.weights.within == pytest.approx(float(within.sqrt()), rel=1e-6)
    assert theta.weights.between == pytest.approx(float(squares[:4, 4:].mean().sqrt()), rel=1e-6)
    assert diagnosis.measured is not None
    assert len(thermometer.readings) >= 2
    text = str(diagnosis)
    for words in ("theta          8 draws in 2 cycles", "temperature", "another class"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 100
    assert "nan" not in text
    orders = [("problem", "warning", "note", "ok").index(a.severity) for a in diagnosis.advice]
    assert orders == sorted(orders)


def test_thermometers_of_two_chains_are_pooled(tmp_path):
    """Independent chains: the error of the mean falls by √2, the mean is that of all readings."""
    (first, one), (_, two) = (chain(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    apart = [diagnose(first, data()[0], thermometer=t).measured for t in (one, two)]
    both = diagnose(first, data()[0], thermometer=[one, two]).measured
    assert both.value == pytest.approx((apart[0].value + apart[1].value) / 2)
    assert both.error == pytest.approx(apart[0].error / 2**0.5)


def test_few_draws_and_several_chains(tmp_path):
    runs = [chain(tmp_path / str(seed), samples=1, seed=seed, steps=60)[0] for seed in (0, 1)]
    diagnosis = diagnose(runs, data()[0])
    assert diagnosis.roles[0].mixing.chains == 4
    assert diagnosis.roles[0].mixing.ess is None
    assert [a.verdict for a in diagnosis.roles[0].agreements] == ["too few"]
    assert diagnosis.roles[0].weights.within is None
    assert diagnosis.temperature is None
    assert any("no R-hat" in advice.text for advice in diagnosis.advice)


@pytest.mark.parametrize("cycles", [1, 2])
def test_several_chains_in_one_store(tmp_path, cycles):
    """As the run engine stores them: one after another, cycles counted anew, steps far apart."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    posterior = Posterior.create(tmp_path / "a", model)
    for step in range(12):
        number, place = divmod(step, 6)
        with torch.no_grad():
            model.weight.normal_()
            model.weight[0] += 10.0 * number
        posterior.collect(step=1000 * number + place, cycle=place // 3 if cycles == 2 else 0)
    options = {"chain_of": lambda sample: sample.step // 1000} if cycles == 1 else {}
    diagnosis = diagnose(posterior, data()[0], **options).roles[0]
    assert diagnosis.mixing.chains == 2 * cycles
    assert diagnosis.weights.between > 2 * diagnosis.weights.within
    assert [a.groups for a in diagnosis.agreements] == ["chains", "cycles"][:cycles]
    assert diagnosis.agreements[0].verdict == "differ"


def test_replicas_are_chains_of_their_own_by_default(tmp_path):
    """Two replicas, eight samples of each in turn: not sixteen draws of one chain."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    sampler = EntropyMCMC(
        model.parameters(), lr=0.5, num_data=10, eta=0.5, replicas=2, temperature=0.1, seed=0
    )
    posterior = Posterior.create(tmp_path / "a", model)
    for step in range(-10, 8):
        for side in (1.0, -1.0):  # the replicas' modes are apart
            for param in model.parameters():
                param.grad = param.detach().clone()
                param.grad[0] -= 5.0 * side
            sampler.step()
        if step >= 0:
            posterior.collect(sampler, cycle=step // 4)
    told = diagnose(posterior, data()[0])
    theta, guide = told.roles
    assert (theta.mixing.draws, theta.mixing.chains, theta.replicas) == (16, 4, 2)
    assert (guide.mixing.draws, guide.mixing.chains, guide.replicas) == (8, 2, 1)
    assert "16 draws of 2 replicas in 2 cycles, " in str(told)
    assert [a.groups for a in theta.agreements] == ["replicas", "cycles"]
    assert [a.groups for a in guide.agreements] == ["cycles"]
    assert theta.agreements[0].verdict == "differ"
    assert any("replicas predict differently" in a.text for a in told.advice)
    flat = {
        (s.replica, s.cycle, s.step): torch.cat([v.ravel().double() for v in posterior[i].values()])
        for i, s in enumerate(posterior.samples)
        if s.role == "theta"
    }
    pairs = [
        float((flat[a] - flat[b]).square().sum()) for a in flat for b in flat
        if a < b and a[:2] == b[:2]
    ]  # fmt: skip
    assert theta.weights.within == pytest.approx((sum(pairs) / len(pairs)) ** 0.5)
    assert set(told.movement) == {"replica 0 of chain 0", "replica 1 of chain 0"}


def test_advice_on_the_coupling_of_replicas():
    """The limits of y replicas are those of (1+y)/2 couplings, and there is no exact rule."""
    param = nn.Parameter(torch.zeros(4))
    with pytest.warns(UserWarning, match="oscillate"):
        sampler = EntropyMCMC([param], lr=0.3, num_data=1, eta=1.0, replicas=3, seed=0)
    thermometer = Thermometer(sampler)
    for _ in range(3):
        param.grad = torch.zeros(4)
        sampler.step()
        thermometer.step()
    tight, early = on_coupling(thermometer)
    assert tight.text.startswith("4/2·lr/(ηN) reached 0.6")
    assert tight.change == 'raise η above 4·lr/N, lower lr, or use integrator="baoab"'
    assert "Σ 4·lr/((1−μ)ηN) = 1.2" in early.text
    assert 'with integrator="baoab"' in early.change


def test_regression_compares_means(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    posterior = Posterior.create(tmp_path / "a", model, likelihood="regression")
    for _ in range(4):
        with torch.no_grad():
            model.weight.normal_()
        posterior.collect(cycle=0)
    x = data()[0]
    means = posterior.sample_predictions(x)[..., 0].double()
    pairs = [(i, j) for i in range(4) for j in range(i)]
    expected = sum(float((means[i] - means[j]).square().mean()) for i, j in pairs) / 6
    diagnosis = diagnose(posterior, x).roles[0].predictions
    assert diagnosis.within == pytest.approx(expected**0.5)
    assert diagnosis.between is None


@pytest.mark.parametrize("steps", [60, 600])
def test_a_short_noisy_part_is_advised_against(tmp_path, steps):
    """Following the advice is enough for a reading; at 60 steps it takes the exact rule."""
    posterior, thermometer = chain(tmp_path / "a", eta=2.0, steps=steps, samples=1)
    diagnosis = diagnose(posterior, data()[0], thermometer=thermometer)
    assert diagnosis.measured is None
    (item,) = [a for a in diagnosis.advice if "no temperature reading" in a.text]
    assert item.severity == "note"
    factor, *rest = item.change.split("divide η by ")[1].split(",")[0].split(" with ")
    rule = "exact" if rest else "euler"
    assert rule == ("exact" if steps == 60 else "euler")
    _, again = chain(
        tmp_path / "b", eta=2.0 / float(factor), steps=steps, samples=1, guide_update=rule
    )
    assert again.readings


def test_advice_on_the_coupling():
    param = nn.Parameter(torch.zeros(4))
    with pytest.warns(UserWarning, match="oscillate"):
        sampler = EntropyMCMC([param], lr=0.3, num_data=1, eta=0.5, temperature=0.0, seed=0)
    thermometer = Thermometer(sampler)
    assert [a.text for a in on_coupling(thermometer)] == ["T = 0: an optimizer, not a sampler"]
    sampler.param_groups[0].update(temperature=1.0, noise=False)
    param.grad = torch.zeros(4)
    sampler.step()
    thermometer.step()
    texts = [a.text for a in on_coupling(thermometer)]
    assert texts[0].startswith("lr/(ηN) reached 0.6")
    assert texts[1].startswith("the noise was never on")
    assert worst(on_coupling(thermometer)) == "problem"
    assert worst([]) == "ok"
    assert str(Advice("note", "text")) == "note: text"
    assert str(Advice("note", "text", "lr")) == "note: text. To change: lr"


def test_near_copies_and_a_cold_posterior_are_noted(tmp_path):
    posterior, thermometer = chain(tmp_path / "a", temperature=1e-6)
    diagnosis = diagnose(posterior, data()[0], thermometer=thermometer)
    texts = " ".join(advice.text for advice in diagnosis.advice)
    assert "near copies" in texts
    assert "colder than the Bayes posterior" in texts


def test_an_empty_posterior_is_refused(tmp_path):
    posterior = Posterior.create(tmp_path / "a", nn.Linear(2, 2))
    with pytest.raises(StateError, match="no samples to diagnose"):
        diagnose(posterior, torch.zeros(1, 2))

"""The diagnosis of chains of a small model: its false alarms, and the faults that it must find.

Rates are those of docs/diagnostics.md; what is simulated are stationary AR(1) chains of a standard
normal, whose energy is x²/2.
"""

import pytest
import torch

from entropy_mcmc import chains
from entropy_mcmc.diagnostics import chain_diagnosis, diagnose_chains
from entropy_mcmc.diagnostics.chain_verdicts import on_worst, worst

SHORT = {"draws": 250, "warm_up_steps": 300, "thin": 3}


def autoregressive(g, chain_count, draws, size, correlation):
    """Chains of a standard normal, (chain, draw, element)."""
    fresh = torch.randn(draws, chain_count, size, generator=g, dtype=torch.float64)
    values = fresh.clone()
    for t in range(1, draws):
        values[t] = correlation * values[t - 1] + (1 - correlation**2) ** 0.5 * fresh[t]
    return values.transpose(0, 1)


def diagnosed(values):
    at = torch.linspace(0, values.shape[1] - 1, 8).long()
    return diagnose_chains(values, values[:, at], values[:, at])


def warned(values):
    return diagnosed(values).severity in ("warning", "problem")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Distances are printed for networks only, and take most of the time."""
    for name in ("prediction_distances", "weight_distances"):
        monkeypatch.setattr(chain_diagnosis, name, lambda *_: None)


@pytest.mark.parametrize(("chain_count", "draws"), [(4, 250), (1, 1000)])
def test_chains_that_mixed_raise_no_alarm(chain_count, draws):
    """10 tries with 10 parameters; at a rate below 0.02 two alarms have p < 0.02."""
    g = torch.Generator().manual_seed(0)
    alarms = sum(warned(autoregressive(g, chain_count, draws, 10, 0.5)) for _ in range(10))
    assert alarms <= 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("chain_count", "draws", "size", "correlation"),
    [
        (4, 250, 1, 0.5),
        (4, 250, 10, 0.5),
        (4, 1000, 10, 0.8),
        (4, 1000, 100, 0.5),
        (1, 1000, 10, 0.5),
    ],
)
def test_rate_of_false_alarms(chain_count, draws, size, correlation):
    """The page says at most 2 %: more than 10 of 200 then have p < 1e-3."""
    g = torch.Generator().manual_seed(1)
    values = [autoregressive(g, chain_count, draws, size, correlation) for _ in range(200)]
    assert sum(map(warned, values)) <= 10


@pytest.mark.parametrize("apart", [1.0, 5.0])
def test_one_parameter_in_which_chains_differ_is_named(apart):
    """Pooled over 20 parameters nothing is seen: the worst one must be looked at."""
    values = autoregressive(torch.Generator().manual_seed(0), 4, 250, 20, 0.5)
    values[:, :, 7] += apart * torch.arange(4.0)[:, None]
    names = [f"p[{i}]" for i in range(20)]
    at = torch.linspace(0, 249, 8).long()
    diagnosis = diagnose_chains(values, values[:, at], values[:, at], names)
    (first, *others) = diagnosis.advice
    assert first.severity == "warning"
    assert "the chains differ in p[7]: R-hat" in first.text
    assert "other parameters" in first.change
    assert not any("no sign" in item.text for item in others)


def test_one_parameter_that_hardly_moves_is_named():
    g = torch.Generator().manual_seed(0)
    values = autoregressive(g, 4, 1000, 3, 0.5)
    values[:, :, 1] = autoregressive(g, 4, 1000, 1, 0.995)[:, :, 0]
    (advice,) = on_worst(worst(values, ["a", "b", "c"]))
    assert advice.severity == "warning"
    assert "for b, whose mean is known to" in advice.text


def test_few_draws_ask_for_more_of_them():
    values = autoregressive(torch.Generator().manual_seed(0), 4, 20, 2, 0.0)
    (advice,) = on_worst(worst(values))
    assert (advice.severity, advice.change) == ("warning", "draw more of them")
    assert worst(values[:, :5]) is None  # too few for a word about R-hat


@pytest.mark.parametrize(("chain_count", "draws"), [(1, 1), (1, 2), (1, 4), (2, 1), (4, 3)])
@pytest.mark.filterwarnings("error")
def test_very_few_draws_are_told_in_words_of_chains(chain_count, draws):
    """One draw of one chain stopped with an error of NumPy; advice was about cycles of a run."""
    values = autoregressive(torch.Generator().manual_seed(0), chain_count, draws, 2, 0.0)
    diagnosis = diagnose_chains(values, values, values)
    assert diagnosis.severity != "ok"
    assert "no R-hat" in str(diagnosis)
    assert "more draws" in str(diagnosis)
    assert "cycle" not in str(diagnosis)


def test_a_chain_that_stands_still_is_found():
    values = autoregressive(torch.Generator().manual_seed(0), 4, 250, 2, 0.5)
    values[:, :, 1] = torch.arange(4.0)[:, None]
    found = worst(values, ["a", "b"])
    assert found.differ
    assert found.rhat[0] > 1e3
    assert found.rhat[1] == found.ess[1] == "b"
    assert found.few


def funnel(t):
    """Neal's: v ~ N(0, 3²), x | v ~ N(0, e^v)."""
    return -(t["v"] ** 2) / 18 - t["x"] ** 2 * torch.exp(-t["v"]) / 2 - t["v"] / 2


def test_neals_funnel_is_warned_about():
    """A step that fits one end of it is wrong at the other: sd of v is 16 here instead of 3.

    Of seeds 0 to 7 seven are warned about, and one diverges.
    """
    draws = chains.sample(funnel, {"v": 0.0, "x": 0.0}, seed=2, **SHORT)
    diagnosis = draws.diagnose()
    assert diagnosis.severity == "warning"
    assert "write the model in other parameters" in diagnosis.advice[0].sentence
    assert "no sign that chains differ" not in str(diagnosis)


def test_the_same_funnel_in_other_parameters_is_sampled():
    draws = chains.sample(
        lambda t: -(t["v"] ** 2) / 18 - t["z"] ** 2 / 2,
        {"v": 0.0, "z": 0.0},
        seed=2,
        **SHORT,
    )
    assert draws.diagnose().severity in ("ok", "note")
    assert float(draws["v"].std()) == pytest.approx(3.0, rel=0.15)

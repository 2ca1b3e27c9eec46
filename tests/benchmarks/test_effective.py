"""The measures and the page of benchmarks/ess.py, and one run of each of our samplers."""

import importlib.util
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from effective import measure, others, ours, page, per_second, search, targets, turns


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend("")  # the script puts its folder on the path: undone after the test
    place = Path(__file__).parents[2] / "benchmarks" / "ess.py"
    spec = importlib.util.spec_from_file_location("ess_script", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def autoregressive(rho, chains=4, draws=20_000, seed=0):
    g = np.random.default_rng(seed)
    noise = g.normal(size=(draws, chains)) * np.sqrt(1 - rho**2)
    values = np.zeros((draws, chains))
    values[0] = g.normal(size=chains)
    for i in range(1, draws):
        values[i] = rho * values[i - 1] + noise[i]
    return values.T[:, :, None]


def test_ess_per_gradient_of_a_known_autocorrelation():
    """AR(1) with ρ = 0.8 has ESS n(1−ρ)/(1+ρ); the estimate of 80,000 draws is within 10 %."""
    made = measure.Run(autoregressive(0.8), gradients=40_000, seconds=2.0)
    result = measure.measured(made, [1.0])
    assert result.ess == pytest.approx(80_000 / 9, rel=0.1)
    assert result.per_gradient == pytest.approx(result.ess / 128_000)  # after burn-in
    assert result.group_ess == pytest.approx(result.ess)
    assert result.accurate


def test_bias_is_found_in_the_group_that_has_it_and_short_runs_are_not_judged():
    draws = np.random.default_rng(1).normal(size=(4, 4000, 40))
    draws[:, :, :4] *= 1.1  # variance 21 % too large
    variances = np.concatenate([np.full(4, 0.99), np.full(36, 1.0)])
    result = measure.measured(measure.Run(draws, 4000, 1.0), variances)
    assert result.bias == pytest.approx(0.22, abs=0.03)
    assert not result.accurate
    short = measure.measured(measure.Run(draws[:, :40, 10:11], 40, 1.0), [1.0])
    assert short.bias_error > measure.UNSURE
    assert not short.accurate
    assert short.too_short


def numbers(bias, error, ess=1000.0):
    return measure.Measured(ess, ess, 0.01, bias, error, 1.0)


def test_a_bias_above_five_percent_is_not_accurate_whatever_its_error():
    """Two standard errors make a pilot plausible, not a result."""
    assert numbers(0.05, 0.02).accurate
    above = numbers(0.056, 0.005)
    assert above.plausible
    assert not above.accurate
    assert not above.too_short
    unsure = numbers(0.04, 0.03)
    assert unsure.plausible
    assert unsure.too_short
    assert not numbers(0.01, 0.001, ess=20.0).accurate
    assert numbers(0.2, 0.03).biased
    assert numbers(float("nan"), float("nan")).biased


def result(step, bias, error, **more):
    return {"step": step, **asdict(numbers(bias, error)), **more}


def test_runs_of_an_earlier_search_are_taken_over_while_it_chose_alike():
    """A bias of 5.6 % was shown by the earlier one; now a smaller step comes after it."""
    made = []

    def fresh(step):
        made.append(step)
        return numbers(0.03, 0.01)

    earlier = [result(1.0, 0.08, 0.02), result(0.5, 0.056, 0.005), result(0.1, 0.01, 0.01)]
    replay = search.Replay(earlier)
    rows = [replay(step, 100, lambda step=step: fresh(step)) for step in (1.0, 0.5, 0.4, 0.1)]
    assert rows[:2] == earlier[:2]
    assert made == [0.4, 0.1]  # from the first that differs on, nothing is taken over
    assert rows[2] == result(0.4, 0.03, 0.01, steps=100)
    longer = search.Replay([result(0.5, 0.03, 0.04, steps=100)])
    assert longer(0.5, 400, lambda: numbers(0.03, 0.02))["steps"] == 400


def test_finals_go_on_until_the_bias_is_small_and_known():
    seen = []

    def final(step, times, attempt):
        seen.append((round(step, 3), times))
        return result(step, 0.05 * step, 0.06 / times)

    rows = search.final_rows(final, 1.2, fixed=False)
    assert seen == [(1.2, 1), (1.2, 4), (0.923, 4)]
    assert search.is_accurate(rows[-1])
    seen.clear()
    search.final_rows(lambda *_: result(1.0, 0.04, 0.2), 1.0, fixed=False)  # ends: too short
    failed = search.final_rows(lambda *_: {"step": 1.0, "error": "NonFiniteError: x"}, 1.0, False)
    assert len(failed) == search.FINALS


def place(target, steps=50, chains=2):
    return measure.Place(10.0, 10.0, steps, target.exact(chains))


def test_few_numbers_keep_every_draw_and_many_are_thinned():
    """Pilots are thinned as the full run is; calls of several gradients by their number."""
    few, many = (measure.Place(1.0, 1.0, 4000, np.zeros((2, dim))) for dim in (10, 784))
    assert (few.thin, many.thin) == (1, 4)
    assert measure.Place(1.0, 1.0, 1000, np.zeros((2, 784)), full=4000).thin == 4
    assert (few.thinned(2000), many.thinned(2000)) == (1, 2)


@pytest.mark.parametrize("method", list(ours.METHODS))
def test_every_sampler_here_runs(method):
    target = targets.gaussian(10.0, dim=3)
    made = ours.run(target, method, 0.2, place(target))
    assert made.draws.shape[0] == 2
    assert made.draws.shape[2] == 3
    assert np.isfinite(made.draws).all()


def test_variances_of_two_modes_are_those_of_exact_draws():
    """Shares 2 : 1 by width; variances from a million draws, within 1 %."""
    g = np.random.default_rng(0)
    flat = g.random(10**6) < 2 / 3
    means = targets.CLOSE * np.array([[-2.0, -1.0], [2.0, 1.0]])
    noise = g.normal(size=(10**6, 2)) * np.where(flat, 1.0, 0.5**0.5)[:, None]
    exact = (means[flat.astype(int)] + noise).var(0)
    np.testing.assert_allclose(targets.two_modes().variances, exact, rtol=0.01)


def test_exact_draws_have_the_known_variances():
    for target in (targets.gaussian(10.0), targets.two_modes()):
        draws = target.exact(40_000).numpy()
        np.testing.assert_allclose(draws.var(0), target.variances, rtol=0.05)


def test_groups_are_not_picked_by_the_errors_of_their_reference():
    """Exact draws against variances with errors of 4.5 %, which the extreme ones mostly are."""
    rng = np.random.default_rng(0)
    draws, noisy = rng.normal(size=(4, 1000, 400)), rng.normal(size=(1000, 400)).var(0)
    run = measure.Run(draws, 1000, 1.0)
    assert measure.measured(run, noisy).bias > 0.06
    assert measure.measured(run, noisy, list(range(400))).bias < 0.03


def logistic_targets(monkeypatch, batch):
    from types import SimpleNamespace

    generator = torch.Generator().manual_seed(0)
    x = 255 * torch.rand(60, 1, 28, 28, generator=generator)
    digits = SimpleNamespace(inputs=x, targets=7 + 2 * (torch.arange(60) % 2))
    monkeypatch.setattr("entropy_mcmc.data.load", lambda name: digits)
    return targets.logistic(60, batch), targets.logistic(60, batch, control=True)


def test_control_variates_keep_the_density_and_take_the_noise_away(monkeypatch):
    """Full gradients agree; at the mode a mini-batch gives the full gradient."""
    plain, control = logistic_targets(monkeypatch, 20)
    theta = 0.1 * torch.randn(784, generator=torch.Generator().manual_seed(1))
    slopes = [torch.func.grad(t.log_density)(theta) for t in (plain, control)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(
        plain.plain(theta, *plain.data), plain.mean_loss(theta, *plain.data), rtol=1e-4, atol=1e-5
    )
    mode = control.tilt * targets.PRIOR_VARIANCE  # where prior and likelihood balance
    some = [part[:20] for part in control.data]
    slope = torch.func.grad(control.mean_loss)(mode, *some)
    assert slope.abs().max() < 1e-4
    assert torch.func.grad(plain.mean_loss)(mode, *some[:2]).abs().max() > 1e-2


def test_squares_limit_the_ess_of_a_chain_that_swings():
    """AR(1) with ρ = −0.8: means are better than independent ones, squares (1−ρ²)/(1+ρ²)."""
    made = measure.Run(autoregressive(-0.8), gradients=40_000, seconds=2.0)
    assert measure.measured(made, [1.0]).ess == pytest.approx(80_000 * 0.36 / 1.64, rel=0.1)


def test_cells_of_an_earlier_search_are_measured_anew(script, tmp_path):
    stored = {"cells": {"a | SGLD": {"best": None}, "a | new": {"protocol": search.PROTOCOL}}}
    assert script.is_missing(stored, "a", "SGLD")
    assert script.is_missing(stored, "a", "other")
    assert not script.is_missing(stored, "a", "new")


def test_entries_of_another_process_are_kept(script, tmp_path):
    file = tmp_path / "ess.json"
    mine = script.load(file)
    script.put(file, "cells", "theirs", 1)
    assert mine["cells"] == {}
    script.put(file, "cells", "mine", 2)
    assert script.load(file)["cells"] == {"theirs": 1, "mine": 2}


def test_a_gaussian_is_measured_whole_and_goes_on(script, tmp_path, capsys):
    file = tmp_path / "ess.json"
    asked = ["run", "--targets", "gaussian-10", "--share", "0.05", "--results", str(file)]
    script.main([*asked, "--methods", "SGLD"])
    cell = script.load(file)["cells"]["gaussian-10 | SGLD"]
    assert cell["closed_form"]
    assert cell["best"]["deviation"] < 4.5
    capsys.readouterr()
    script.main([*asked, "--methods", "SGLD"])
    assert capsys.readouterr().out == ""


def stored_page():
    """A logistic target with two samplers that were timed, and four without an ESS or seconds."""
    new = {"protocol": search.PROTOCOL, "chains": 16, "steps": 2000}
    good = {**result(0.1, 0.01, 0.02), "ess": 50.0}
    bad = [result(1.0, 0.3, 0.01), result(0.5, 0.2, 0.01)]
    cells = {
        "g | SGLD": {"tried": [], "best": {**good, "per_gradient": 0.001}, **new},
        "g | PSGLD": {"tried": [], "best": {**good, "per_gradient": 1e-4, "steps": 8000}, **new},
        "g | blackjax NUTS": {"tried": [], "best": good},
        "g | broken": {"tried": [{"step": 1, "error": "NonFiniteError: x"}], "best": None},
        "g | short": {"tried": [result(1.0, 0.02, 0.5)], "best": None},
        "g | biased": {"tried": bad, "best": None},
    }
    rates = {"SGLD": [10.0, 40.0, 20.0], "blackjax NUTS": [100.0, 90.0, 95.0]}
    return {
        "targets": {"g": {"title": "Regression", "family": "logistic", "dim": 3}},
        "references": {"logistic": {"condition": 1000.0, "variance_error": 0.037}},
        "cells": cells,
        "seconds": {"g": {"rates": rates, "compiling": {"SGLD": 12.0, "blackjax NUTS": 3.0}}},
    }


def test_the_page_has_the_best_first_and_says_why_not(script):
    lines = script.page(stored_page()).splitlines()
    rows = [line for line in lines if line.startswith("| ") and "ESS per" not in line]
    assert rows[0] == "| Regression | **SGLD** | blackjax NUTS | 1.0% ± 2.0% | 1.0% ± 2.0% " + (
        "| 0.1 | 0.0211 |"
    )
    assert rows[1].startswith("| blackjax NUTS † | 10 | 95 (90 to 100) | 0.95 | 50 |")
    assert rows[2].startswith("| **SGLD** | 1 | 20 (10 to 40) | 0.02 | 50 |")
    assert rows[3].startswith("| **PSGLD** | 0.1 | – | – | 50 (×4) |")
    assert "| – | diverged at every step size tried (1 to 1) |" in rows[4]
    assert "| 1000 | too short to judge |" in rows[5]
    assert "| – | biased at every step size tried (0.5 to 1) |" in rows[6]
    text = "\n".join(lines)
    assert "NonFiniteError" not in text
    assert "Condition of the Hessian 1,000, 3 numbers." in text
    assert "errs by 3.7%, on average. 16 chains of 2,000 gradients." in text
    assert "this library 12 to 12 s, blackjax 3 to 3 s" in text
    assert "Entropy-SGLD" in text


def test_a_target_that_was_not_timed_is_ranked_by_gradients():
    stored = {**stored_page(), "seconds": {}}
    assert per_second.best_here(stored, "g") == "SGLD"
    assert per_second.ratio_rows(stored, "g")[0].endswith("| 0.1 | – |")
    assert "Not timed yet." in page.page(stored)


def test_like_is_compared_with_like_where_both_have_a_run():
    stored = stored_page()
    theirs = {**stored["cells"]["g | SGLD"]["best"], "per_gradient": 0.0005}
    stored["cells"]["g | posteriors SGLD"] = {**stored["cells"]["g | SGLD"], "best": theirs}
    (row,) = per_second.like_rows(stored, "g")
    assert row.startswith("| Regression | **SGLD** | posteriors SGLD |")
    assert row.endswith("| 2 | – |")
    assert row in page.page(stored)


def test_every_rival_is_beside_the_best():
    assert set(per_second.RIVALS) == set(others.METHODS)


def test_turns_do_not_count_the_first_round():
    calls = {"a": 0, "b": 0}

    def play(name):
        calls[name] += 1
        return float(calls[name])

    players = {name: turns.Player(lambda name=name: play(name), 2.0) for name in calls}
    made = turns.timed(players, 3)
    assert made["rates"] == {"a": [2.0, 3.0, 4.0], "b": [2.0, 3.0, 4.0]}
    assert made["compiling"] == {"a": 2.0, "b": 2.0}


def test_seconds_times_what_has_an_ess_target_by_target_and_goes_on(
    script, tmp_path, capsys, monkeypatch
):
    """With this library's samplers, not compiled; a second start times nothing."""
    plain = ours.run
    monkeypatch.setattr(ours, "run", lambda *given, compile=False: plain(*given))
    file = tmp_path / "ess.json"
    asked = ["--targets", "gaussian-10", "--results", str(file), "--methods", "SGLD", "SGHMC"]
    script.main(["run", "--share", "0.05", *asked])
    stored = script.load(file)
    stored["cells"]["gaussian-10 | SGHMC"]["best"] = None
    script.put(file, "cells", "gaussian-10 | SGHMC", stored["cells"]["gaussian-10 | SGHMC"])
    capsys.readouterr()
    script.main(["seconds", "--rounds", "2", "--turn", "0.01", *asked])
    timed = script.load(file)["seconds"]["gaussian-10"]
    assert set(timed["rates"]) == {"SGLD"}
    assert len(timed["rates"]["SGLD"]) == 2
    assert min(timed["rates"]["SGLD"]) > 0
    assert timed["chains"] == 64
    capsys.readouterr()
    script.main(["seconds", *asked])
    assert capsys.readouterr().out == ""

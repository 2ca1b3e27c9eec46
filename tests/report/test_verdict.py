"""What the page says of a run: signed, with errors, never green where it loses."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from entropy_mcmc.posterior.manifest import STRIDE
from entropy_mcmc.report.baseline_comparison import decided_losses
from entropy_mcmc.report.best_run import decided_best, ece_draws, resampled_error, row_error
from entropy_mcmc.report.diagnostics_section import _checked, _merged
from entropy_mcmc.report.figures.learning import loss_figure, restarts, restarts_in_words
from entropy_mcmc.report.figures.quality import reliability_figure
from entropy_mcmc.report.member_scores import BASELINE, SINGLE, WHOLE, Member, members
from entropy_mcmc.report.page_predictions import Classified
from entropy_mcmc.report.run_data import collect
from entropy_mcmc.report.score_difference import (
    Difference,
    accuracy_difference,
    nll_difference,
    paired,
    rmse_difference,
)
from entropy_mcmc.report.seed_averages import nll_over_seeds, over_seeds
from entropy_mcmc.report.verdict import rivals, verdict
from run.workers import TRUSTED

RNG = np.random.default_rng(3)


def test_paired_difference_and_its_error():
    first, second = RNG.normal(size=50), RNG.normal(size=50)
    away = [a - b for a, b in zip(first, second, strict=True)]
    mean = sum(away) / 50
    spread = sum((v - mean) ** 2 for v in away) / 49
    assert paired(first, second) == pytest.approx((mean, math.sqrt(spread / 50)))


@pytest.mark.parametrize(
    ("value", "error", "kind"),
    [
        (-0.05, 0.01, "better"),
        (0.05, 0.01, "worse"),
        (-0.05, 0.03, "open"),
        (0.0, 0.02, "open"),
        (0.004, 0.001, "alike"),  # certain, and too small to matter
        (0.0, 0.004, "alike"),
        (0.0, 0.0051, "open"),
        (math.nan, math.nan, "infinite"),
    ],
)
def test_what_a_difference_decides(value, error, kind):
    assert Difference("NLL", value, error, 0.01).kind == kind
    turned = {"better": "worse", "worse": "better"}.get(kind, kind)
    assert Difference("accuracy", value, error, 0.01, lower_is_better=False).kind == turned


def test_words_of_differences():
    assert str(Difference("NLL", -0.05, 0.01, 0.01)) == "NLL −0.05 ± 0.01 nats"
    assert str(Difference("NLL", 0.004, 0.001, 0.01)).endswith(", alike within 0.01 nats")
    assert str(Difference("NLL", 0.05, 0.1, 0.01)).endswith(", not decided")
    shown = str(Difference("accuracy", -0.0125, 0.002, 0.005, lower_is_better=False))
    assert shown == "accuracy −1.2 ± 0.2 points"
    tiny = str(Difference("accuracy", -0.0004, 0.001, 0.005, lower_is_better=False))
    assert tiny.startswith("accuracy 0.0 ± 0.1 points")  # neither −0.0 nor +0.0


def test_an_infinite_loss_decides_nothing():
    difference = nll_difference(np.array([np.inf, 1.0]), np.array([1.0, 1.0]))
    assert difference.kind == "infinite"


def test_rmse_is_compared_by_its_squares():
    first, second = RNG.exponential(1.0, 4000), RNG.exponential(1.3, 4000)
    difference = rmse_difference(first, second)
    assert difference.value == pytest.approx(math.sqrt(first.mean()) - math.sqrt(second.mean()))
    # Its error against resampled rows: 400 resamples give it to 3.5 % (one standard error).
    draws = []
    for _ in range(400):
        rows = RNG.integers(4000, size=4000)
        draws.append(math.sqrt(first[rows].mean()) - math.sqrt(second[rows].mean()))
    assert difference.error == pytest.approx(np.std(draws), rel=0.15)
    assert difference.margin == pytest.approx(0.01 * math.sqrt(second.mean()))


def member(name, nll, accuracy, rows=400, seed=0):
    """Rows with this mean NLL and accuracy; the same seed gives the same rows but for the mean."""
    rng = np.random.default_rng(seed)
    losses = nll + 0.1 * rng.normal(size=rows)
    hits = (np.arange(rows) < accuracy * rows).astype(float)
    scores = {"nll": nll, "accuracy": accuracy, "ece": 0.01}
    return Member(name, 1, scores, {"nll": losses, "accuracy": hits})


def judged(*actual, severity="ok"):
    run = SimpleNamespace(
        diagnostics={"severity": severity}, predicted=None, samples=(), baseline=None
    )
    run.predicted = Classified.__new__(Classified)
    return verdict(run, actual)


def test_the_verdict_is_green_only_where_the_run_is_better():
    ours = member(WHOLE, 0.3, 0.9)
    single = member(SINGLE, 0.5, 0.9, seed=1)
    words, severity = judged(ours, single, member(BASELINE, 0.4, 0.9, seed=2))
    assert severity == "ok"
    assert words.startswith("Better than one SGD network")
    assert "NLL 0.300 against 0.400 (−" in words
    assert "paired over 400 test rows" in words
    words, severity = judged(ours, single, member(BASELINE, 0.2, 0.9, seed=2))
    assert (severity, words[:10]) == ("problem", "Worse than")
    words, severity = judged(ours, single, member(BASELINE, 0.29, 0.9, seed=2), severity="problem")
    assert severity == "problem"


def test_the_best_rival_counts():
    ours, single, base = (
        member(WHOLE, 0.3, 0.9),
        member(SINGLE, 0.25, 0.9),
        member(BASELINE, 0.4, 0.9),
    )
    assert [m.name for m in rivals([ours, single, base])] == [SINGLE, BASELINE]
    words, severity = judged(ours, single, base)
    assert severity == "problem"
    assert "one of its own samples" in words


def test_alike_needs_a_margin_and_open_is_said():
    words, severity = judged(member(WHOLE, 0.3, 0.9), member(BASELINE, 0.301, 0.9))
    assert severity == "note"
    assert words.startswith("As good as")
    assert "alike within 0.01 nats" in words
    words, severity = judged(member(WHOLE, 0.3, 0.9), member(BASELINE, 0.31, 0.905, seed=5))
    assert severity == "note"
    assert words.startswith("Not shown to be better")


def test_a_gain_in_nll_does_not_hide_a_loss_of_accuracy():
    words, severity = judged(member(WHOLE, 0.3, 0.8), member(BASELINE, 0.4, 0.9, seed=2))
    assert severity == "warning"
    assert words.startswith("Better in NLL, worse in accuracy than")


def test_a_gain_in_accuracy_alone_is_not_green():
    words, severity = judged(member(WHOLE, 0.3, 0.95), member(BASELINE, 0.305, 0.9, seed=2))
    assert severity == "note"
    assert words.startswith("Better only in accuracy than")
    words, severity = judged(member(WHOLE, 0.3, 0.85), member(BASELINE, 0.305, 0.9, seed=2))
    assert severity == "warning"
    assert words.startswith("Worse in accuracy than")


def predicted(sharpness, ood=None):
    """Predictions of the same 2,000 rows; 1 is calibrated. Larger `ood`: more certain there."""
    rng = np.random.default_rng(0)
    true = rng.dirichlet([1.0, 1.0, 1.0], 2000)
    labels = np.array([rng.choice(3, p=row) for row in true])
    rows = SimpleNamespace(targets=labels)

    def sharp(probs, power):
        return probs**power / (probs**power).sum(1, keepdims=True)

    outside = rng.dirichlet([2.0, 2.0, 2.0], 500)
    others = {"other": sharp(outside, ood)} if ood else {}
    each = sharp(true, sharpness)[None].astype(np.float32)
    return Classified(each, ("theta",), rows, others)


def test_a_gain_in_nll_does_not_hide_a_loss_in_calibration_or_ood_detection():
    ours, base = member(WHOLE, 0.3, 0.9), member(BASELINE, 0.4, 0.9, seed=2)

    def told(own, theirs):
        baseline = SimpleNamespace(predicted=theirs)
        run = SimpleNamespace(diagnostics={}, predicted=own, samples=(), baseline=baseline)
        return verdict(run, [ours, base])

    words, severity = told(predicted(2.0), predicted(1.0))
    assert severity == "note"
    assert "Worse than one SGD network in ECE (+" in words
    words, severity = told(predicted(1.0), predicted(2.0))
    assert (severity, "Worse" in words) == ("ok", False)
    words, severity = told(predicted(1.0, ood=4.0), predicted(1.0, ood=1.0))
    assert severity == "note"
    assert "Worse than one SGD network in OOD AUROC (−" in words


def test_alike_predictions_lose_nothing():
    same = predicted(1.0, ood=1.0)
    run = SimpleNamespace(predicted=same, baseline=SimpleNamespace(predicted=same))
    assert decided_losses(run) == []


def test_without_a_rival_nothing_is_claimed():
    words, severity = judged(member(WHOLE, 0.3, 0.9))
    assert severity == "note"
    assert "no baseline" in words


def test_rows_of_differences_are_those_of_the_members():
    first, second = member(WHOLE, 0.3, 0.8), member(BASELINE, 0.4, 0.9, seed=2)
    difference = accuracy_difference(first.rows["accuracy"], second.rows["accuracy"])
    assert difference.value == pytest.approx(-0.1)
    assert difference.kind == "worse"


def test_a_mark_needs_every_other_run_to_be_clearly_behind():
    def decided(values, error):
        return decided_best("nll", values, lambda i, j: error)

    assert decided([0.3, 0.4, 0.5], 0.01) == 0
    assert decided([0.5, 0.4, 0.39], 0.01) is None
    assert decided([0.3, None, 0.5], 0.01) == 0
    assert decided([0.3, None, None], 0.01) is None
    assert decided([0.3, 0.4, 0.5], math.nan) is None
    # Two runs need 1.96 standard errors, three 2.24 (Bonferroni).
    assert decided([0.3, 0.321], 0.01) == 0
    assert decided([0.3, 0.321, 0.9], 0.01) is None
    # Decided, and too small to matter: the note beside the table calls it alike.
    assert decided([0.3, 0.304], 0.001) is None
    assert decided([0.3, 0.304], 0.0031) is None
    assert decided([0.3, 0.32], 0.001) == 0
    assert decided_best("coverage", [0.95, 0.5], lambda i, j: 0.001) is None


def test_errors_of_marks():
    marked = [member(WHOLE, 0.3, 0.9), member(WHOLE, 0.4, 0.9, seed=2), None]
    error = row_error(marked, "nll")
    expected = paired(marked[0].rows["nll"], marked[1].rows["nll"])[1]
    assert error(0, 1) == pytest.approx(expected)
    assert math.isnan(error(0, 2))
    draws = resampled_error([np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]), None])
    assert draws(0, 1) == pytest.approx(np.std([0, 1, 2]))
    assert math.isnan(draws(0, 2))


def test_the_bootstrap_of_the_ece_scatters_as_new_rows_do():
    """The spread over fresh sets of rows is known to 1/√(2·200) = 5 %: 25 % is five of these."""
    rng = np.random.default_rng(4)

    def drawn():
        probs = rng.dirichlet([1.0, 1.0, 1.0], 500)
        sharp = probs**2 / (probs**2).sum(1, keepdims=True)
        labels = np.array([rng.choice(3, p=row) for row in probs])
        rows = SimpleNamespace(targets=labels)
        return Classified(sharp[None].astype(np.float32), ("theta",), rows)

    from entropy_mcmc import metrics

    fresh = [metrics.ece(one.average(), one.targets) for one in (drawn() for _ in range(200))]
    draws = np.mean([np.std(ece_draws(drawn())) for _ in range(5)])
    assert draws == pytest.approx(np.std(fresh), rel=0.25)


def test_groups_with_few_rows_are_shown_as_such():
    probs = np.array([[0.95, 0.05]] * 40 + [[0.6, 0.4]] * 3)
    figure = reliability_figure([("m", probs, np.zeros(43, int))])
    assert figure.drawing.count("mark hollow") == 1
    assert [row[1] for row in figure.table.rows] == ["3 (few)", "40"]
    assert "fewer than 20 rows" in figure.keys[0][1]


def with_losses(run, losses, steps_per_cycle, cycles):
    events = [
        {"kind": "train", "chain": 0, "step": i + 1, "cycle": i // steps_per_cycle, "loss": loss,
         "lr": 0.1, "samples": 0, "gradients": i + 1}
        for i, loss in enumerate(losses)
    ]  # fmt: skip
    record = replace(run.record, cycle_steps=steps_per_cycle)
    return replace(run, events=events, record=record)


def test_restart_jumps_are_remarked(runs):
    run = collect(runs["sgld"])
    cycles = run.record.cycles
    assert cycles == 2
    jumped = with_losses(run, [2.0, 1.0, 0.5, 1.5, 0.9, 0.4], 3, cycles)
    (restart,) = restarts(jumped)
    assert (restart.step, restart.before, restart.peak, restart.end) == (3, 0.5, 1.5, 0.4)
    assert "at most from 0.5 to 1.5" in restarts_in_words(jumped)
    assert "in 1 of 1 restarts" in restarts_in_words(jumped)
    assert "in 0 of 1" in restarts_in_words(with_losses(run, [2.0, 0.5, 1.5, 0.9], 2, cycles))
    calm = with_losses(run, [2.0, 1.0, 0.9, 0.8], 2, cycles)
    assert "the loss does not" in restarts_in_words(calm)
    assert restarts_in_words(with_losses(run, [2.0, 1.0], 4, cycles)) == ""


def test_a_curve_of_one_line_is_seen(runs):
    figure = loss_figure(with_losses(collect(runs["sgld"]), [2.0], 20, 2))
    assert figure.drawing.count('class="mark"') == 1


def test_a_short_run_has_a_curve(runs):
    """log_every=5 alone would give these runs of 20 or 40 steps a handful of lines."""
    for name in ("classes", "regression"):
        run = collect(runs[name], trust=TRUSTED)
        steps = run.record.cycle_steps * run.record.cycles
        assert steps <= 60
        assert len(run.losses()[0]) >= min(20, steps)


def test_equal_remedies_are_merged():
    advice = [
        {"severity": "note", "text": "a", "change": "x"},
        {"severity": "note", "text": "b", "change": "x"},
        {"severity": "note", "text": "a", "change": "x"},
        {"severity": "warning", "text": "c", "change": "x"},
        {"severity": "ok", "text": "d", "change": ""},
        {"severity": "ok", "text": "e"},
    ]
    merged = [(e["severity"], e["text"], e["change"]) for e in _merged(advice)]
    assert merged == [
        ("note", "a; b", "x"), ("warning", "c", "x"), ("ok", "d", ""), ("ok", "e", ""),
    ]  # fmt: skip


def test_only_what_was_checked_is_called_checked():
    assert _checked({}) == (
        "Not checked: whether the chain is at its temperature, whether its cycles or chains agree, "
        "whether its samples differ."
    )
    roles = [{"agreements": [{"verdict": "too few"}], "weights": {"within": 0.1}}]
    told = _checked({"measured": [0.01, 0.001], "roles": roles})
    assert told == (
        "Checked: whether the chain is at its temperature, whether its samples differ. "
        "Not checked: whether its cycles or chains agree."
    )
    roles[0]["agreements"][0]["verdict"] = "alike"
    assert "Not checked" not in _checked({"measured": [0.01, 0.001], "roles": roles})


@pytest.mark.parametrize(
    ("reading", "decides"),
    [
        ([1.0, 0.01], True),  # right
        ([2.0, 0.01], True),  # hot
        ([1.0, 0.9], False),  # too uncertain
        ([0.3, 0.01], False),  # samples close in time
        ([-0.001, 0.002], False),  # near copies
        (["a", None], False),  # a file of other hands
    ],
)
def test_a_vague_temperature_of_theta_is_not_called_checked(reading, decides):
    theta = {"reading": reading, "freedom": 7, "draws": 8, "batches": 2, "within": True}
    told = _checked({"temperature": 1.0, "theta_temperature": theta})
    assert told.startswith("Checked: whether the chain is at its temperature") is decides


def seeded(run, name, seed, method="emcmc"):
    config = replace(run.record.config, seed=seed, method=method)
    return replace(run, name=name, record=replace(run.record, config=config))


def test_runs_of_several_seeds_are_compared_over_seeds(runs):
    run = collect(runs["sgld"])
    four = [seeded(run, f"{m}{s}", s, m) for m in ("emcmc", "sgld") for s in (0, 1)]
    scores = [{"nll": v, "accuracy": 0.9} for v in (0.30, 0.31, 0.40, 0.42)]
    table = over_seeds(four, scores, ["accuracy", "nll"])
    assert [row[2] for row in table.rows] == [2, 2]
    assert table.rows[0][-1] == "0.3050 ± 0.0050"
    first, second, difference = nll_over_seeds(four, scores)
    assert (first, second) == ("emcmc0, emcmc1", "sgld0, sgld1")
    assert difference.value == pytest.approx(-0.105)
    assert difference.errors == pytest.approx(12.706, abs=0.001)  # Student's t of one degree
    assert difference.kind == "better"
    close = [{"nll": v} for v in (0.30, 0.35, 0.40, 0.42)]
    assert nll_over_seeds(four, close)[2].kind == "open"


def test_runs_of_other_seeds_are_not_paired(runs):
    run = collect(runs["sgld"])
    others = [seeded(run, "a", 0), seeded(run, "b", 1, "sgld")]
    assert over_seeds(others, [{"nll": 1.0}] * 2, ["nll"]) is None
    assert nll_over_seeds(others, [{"nll": 1.0}] * 2) is None


def test_effectively_different_networks_are_told(runs):
    from entropy_mcmc.report.independent_networks import effectively_different, in_words, tile

    run = collect(runs["emcmc"])
    told = effectively_different(run)
    assert told.compared == "cycles"  # one chain: an upper bound
    assert 1 <= told.networks.value <= len(run.samples)
    assert "at most" in in_words(told)
    assert tile(told)[1].startswith("≤ ")
    single = replace(run, samples=tuple(replace(s, cycle=0) for s in run.samples))
    assert "not known" in in_words(effectively_different(single))
    assert tile(effectively_different(single))[1] == "unknown"
    # Two replicas of one chain of one cycle: they can be compared, but share their guide.
    turns = [replace(s, replica=i % 2) for i, s in enumerate(single.samples)]
    pair = effectively_different(replace(single, samples=tuple(turns)))
    assert (pair.compared, pair.parts) == ("replicas", 2)
    assert "at most" in in_words(pair)
    assert "measured between 2 replicas, which share a guide" in in_words(pair)
    assert "--chains" not in in_words(pair)
    assert tile(pair)[2] == f"of {len(run.samples)}, from 2 replicas"
    guides = [replace(s, replica=i % 3 if i % 3 < 2 else None) for i, s in enumerate(turns)]
    assert effectively_different(replace(single, samples=tuple(guides))).parts == 2
    each = tuple(replace(s, replica=i) for i, s in enumerate(single.samples))
    assert "they share a guide" in in_words(effectively_different(replace(single, samples=each)))
    assert effectively_different(replace(run, predicted=None)) is None
    alone = tuple(replace(s, step=i * STRIDE) for i, s in enumerate(run.samples))
    assert "count as independent" in in_words(effectively_different(replace(run, samples=alone)))
    assert len(members(run)) > 3

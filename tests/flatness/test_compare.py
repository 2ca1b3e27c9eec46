"""The table and the figures: the same numbers as the single measures."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.learning_coefficient import estimate
from entropy_mcmc.flatness.table import gamma_decides

SETTINGS = flatness.Settings(
    eigenvalues=2, probes=4, lanczos_steps=10, directions=2, distances=(0.0, 1.0)
)


@pytest.fixture
def compared(problem, unchanged):
    unchanged(problem.model)
    theta = {k: v.clone() for k, v in problem.model.state_dict().items()}
    guide = {k: v * 1.1 if v.is_floating_point() else v for k, v in theta.items()}
    small = flatness.subset(problem.data, 8)
    comparison = flatness.compare(
        problem.model,
        problem.loss,
        problem.data,
        {"theta": theta, "guide": guide},
        hessian_data=small,
        test=problem.data,
        settings=SETTINGS,
    )
    return problem, small, comparison


def test_rows_equal_the_single_measures(compared):
    problem, small, comparison = compared
    args = (problem.model, problem.loss, small)
    row = comparison.rows[0]
    fisher = flatness.fisher_diagonal(problem.model, problem.loss, problem.data)
    assert row.fisher_max == pytest.approx(float(fisher.variance.max()))
    assert row.loss == pytest.approx(float(problem.flat_loss(problem.flat())))
    assert row.top_eigenvalue == pytest.approx(flatness.top_eigenvalues(*args, 1)[0], rel=1e-3)
    assert row.trace == pytest.approx(flatness.hessian_trace(*args, probes=4).value)
    sharp = flatness.sam_sharpness(*args, rho=0.05, steps=5)
    assert row.sharpness == pytest.approx(sharp.ascent)
    line = flatness.interpolate_random(*args, (0.0, 1.0), directions=2)
    assert row.rise == pytest.approx(line.mean_loss[1] - line.mean_loss[0])
    assert comparison.rows[1].loss != row.loss


def test_table_and_records(compared):
    _, _, comparison = compared
    text = str(comparison)
    lines = text.splitlines()
    assert lines[0].split() == ["theta", "guide"]
    row = comparison.rows[1]
    (trace,) = [line for line in lines if line.startswith("Hessian, trace")]
    assert trace.endswith(f"{row.trace:.4g} ± {row.trace_error:.2g}")
    (rise,) = [line for line in lines if "random directions at 1" in line]
    assert rise.split()[-1] == f"{row.rise:.4g}"
    assert "Loss and Fisher: 20 training rows; the rest: a fixed 8 of them" in text
    assert [r["name"] for r in json.loads(json.dumps(comparison.records()))] == ["theta", "guide"]


def test_the_learning_coefficient_is_a_line_and_its_warnings_are_notes(plain):
    sampling = flatness.LocalSampling(steps=40, chains=2, batch_size=None, localisation=1e4)
    states = {"theta": plain.model.state_dict()}
    args = (plain.model, plain.loss, plain.data, states)
    comparison = flatness.compare(*args, settings=replace(SETTINGS, learning=sampling))
    row, alone = comparison.rows[0], estimate(*args[:3], sampling)
    assert row.learning_coefficient == alone.value
    assert row.learning_coefficient_error == alone.standard_error
    (line,) = [
        t for t in str(comparison).splitlines() if t.startswith("local learning coefficient")
    ]
    assert f"{alone.value:.4g} ± {alone.standard_error:.2g}" in line
    assert row.learning_localisation == 1e4
    assert row.learning_by_localisation == alone.effect.values
    assert row.learning_sensitivity == alone.effect.sensitivity
    assert row.learning_gamma_decides == alone.effect.decides
    assert (row.learning_rhat, row.learning_ess) == (alone.rhat, alone.ess)
    assert row.learning_temperature == alone.temperature
    assert row.learning_measured_temperature == alone.measured_temperature
    assert row.learning_counted_temperature == alone.counted_temperature
    assert "localisation γ = 10000 is a convention" in str(comparison)
    assert f"{alone.effect.values[0]:.4g}" in str(comparison)
    assert ("γ decides the value of theta" in str(comparison)) == alone.effect.decides
    wild = flatness.compare(*args, settings=replace(SETTINGS, learning=replace(sampling, lr=1e8)))
    assert wild.rows[0].learning_coefficient is None
    assert wild.rows[0].learning_measured_temperature is None
    assert wild.rows[0].learning_counted_temperature is None
    assert "Learning coefficient of theta, not trustworthy: 2 of 2 chains diverged" in str(wild)
    assert "failed" in str(wild)
    assert "By curvatures" not in str(wild)  # lr was given: none were measured
    json.dumps(wild.records(), allow_nan=False)


def test_a_measure_that_was_not_made_is_no_line(plain):
    state = plain.model.state_dict()
    comparison = flatness.compare(
        plain.model, plain.loss, plain.data, {"theta": state}, settings=SETTINGS
    )
    assert "test error" not in str(comparison)
    assert "earning coefficient" not in str(comparison)


def test_batches_and_test_rows_change_only_the_work(problem):
    """Small Hessian batches give the same numbers; the error of the row uses the whole test set."""
    state = {k: v.clone() for k, v in problem.model.state_dict().items()}
    args = (problem.model, problem.loss, problem.data, {"theta": state})
    whole = flatness.compare(*args, test=problem.data, settings=SETTINGS).rows[0]
    small = replace(SETTINGS, batch=3, test_rows=5)
    cut = flatness.compare(*args, test=problem.data, settings=small)
    assert cut.rows[0].trace == pytest.approx(whole.trace, rel=1e-5)
    assert cut.rows[0].test_error == whole.test_error
    errors = cut.measured["theta"].interpolation.error
    np.testing.assert_allclose(errors * 5, np.round(errors * 5), atol=1e-5)


def test_figures_are_written(compared, tmp_path):
    paths = flatness.save_figures(compared[2], tmp_path / "figures")
    assert [p.name for p in paths] == ["fisher.png", "density.png", "interpolation.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in paths)


def test_surface_figure_draws_points_and_samples(plain, tmp_path):
    states = [
        {k: v + i * torch.randn(v.shape, generator=g).to(v) for k, v in state.items()}
        for i, g in enumerate(torch.Generator().manual_seed(s) for s in range(4))
        for state in [plain.model.state_dict()]
    ]
    surface = flatness.loss_surface(
        plain.model, plain.loss, plain.data, states[:3], samples={"s": states[3]}, resolution=3
    )
    figure = flatness.surface_figure(surface)
    figure.savefig(tmp_path / "surface.png")
    drawn = [line.get_xydata() for line in figure.axes[0].lines]
    np.testing.assert_allclose(drawn[0], surface.points)
    np.testing.assert_allclose(drawn[1], surface.samples)
    # As wide as high beyond the points: a margin of 30 % of the larger extent.
    corners = np.concatenate([surface.points, surface.samples])
    extra = 0.3 * np.ptp(corners, axis=0).max()
    for axis, values in ((surface.x, corners[:, 0]), (surface.y, corners[:, 1])):
        np.testing.assert_allclose(axis[[0, -1]], [values.min() - extra, values.max() + extra])


def test_subset_is_fixed_by_its_seed(plain):
    first, again = flatness.subset(plain.data, 5), flatness.subset(plain.data, 5)
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], flatness.subset(plain.data, 5, seed=1)[0])
    with pytest.raises(ConfigError, match="at most 20"):
        flatness.subset(plain.data, 21)


def test_no_states_are_refused(plain):
    with pytest.raises(ConfigError, match="at least one state"):
        flatness.compare(plain.model, plain.loss, plain.data, {})


@pytest.mark.parametrize(
    ("row", "decides"),
    [
        ({"learning_sensitivity": 0.9, "learning_gamma_decides": False}, False),  # too rough
        ({"learning_sensitivity": 0.9, "learning_gamma_decides": True}, True),
        ({"learning_sensitivity": 0.9}, True),  # of a file from before
        ({"learning_sensitivity": 0.1}, False),
        ({"learning_sensitivity": None}, False),
        ({"learning_sensitivity": "0.9", "learning_gamma_decides": "yes"}, False),
    ],
)
def test_a_rough_sensitivity_is_no_verdict(row, decides):
    assert gamma_decides(row) == decides


@pytest.mark.parametrize("rows", [0, -3, 2.5])
def test_rows_of_the_learning_coefficient_are_refused_before_anything_is_measured(rows):
    with pytest.raises(ConfigError, match="batch_size must be a whole number of at least 1, got"):
        flatness.LocalSampling(batch_size=rows)

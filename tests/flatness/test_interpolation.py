"""Lines in parameter space against losses computed one by one."""

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError


def states(problem, count):
    """Copies of the state with shifted parameters."""
    out = []
    for i in range(count):
        torch.manual_seed(10 + i)
        state = {k: v.clone() for k, v in problem.model.state_dict().items()}
        for name, _ in problem.model.named_parameters():
            state[name] += 0.3 * torch.randn(state[name].shape).to(state[name])
        out.append(state)
    return out


def flat_state(problem, state):
    return torch.cat([state[n].reshape(-1) for n, _ in problem.model.named_parameters()])


def test_between_two_states_equals_the_loss_at_each_point(problem, unchanged):
    start, end = states(problem, 2)
    a, b = flat_state(problem, start), flat_state(problem, end)
    unchanged(problem.model)
    line = flatness.interpolate_between(
        problem.model,
        problem.loss,
        problem.data,
        start,
        end,
        fractions=[0, 0.25, 1],
        test=problem.data,
    )
    expected = [float(problem.flat_loss(a + f * (b - a))) for f in (0, 0.25, 1)]
    np.testing.assert_allclose(line.loss[0], expected)
    np.testing.assert_allclose(line.distances, np.array([0, 0.25, 1]) * float((b - a).norm()))
    assert line.batchnorm == "fixed"
    assert line.error.shape == (1, 3)


def test_fixed_statistics_are_those_of_the_first_state(device, unchanged):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).to(device)
    x, y = torch.randn(12, 3), torch.randint(0, 3, (12,))
    states = [{k: v.clone() for k, v in model.state_dict().items()} for _ in range(3)]
    for i, state in enumerate(states):
        state["1.running_mean"] += 1 + i
        state["0.weight"][i, 0] += 1.0
    unchanged(model)
    args = (model, nn.functional.cross_entropy, (x, y))
    line = flatness.interpolate_between(*args, *states[:2], fractions=[0.0, 1.0])
    surface = flatness.loss_surface(*args, states, margin=0.0, resolution=2)

    def expected(weights, buffers):
        mixed = {**states[weights], "1.running_mean": states[buffers]["1.running_mean"]}
        model.eval()
        out = torch.func.functional_call(model, mixed, (x.to(device),))
        model.train()
        return float(nn.functional.cross_entropy(out, y.to(device)))

    np.testing.assert_allclose(line.loss[0], [expected(0, 0), expected(1, 0)], rtol=1e-5)
    assert expected(1, 0) != pytest.approx(expected(1, 1), rel=1e-3)
    # Without a margin the first point is the grid's lower left corner.
    np.testing.assert_allclose(surface.points[0], 0.0, atol=1e-6)
    assert surface.loss[0, 0] == pytest.approx(expected(0, 0), rel=1e-5)


def test_random_lines_equal_the_loss_at_each_point(plain, unchanged):
    unchanged(plain.model)
    args = (plain.model, plain.loss, plain.data)
    line = flatness.interpolate_random(*args, [0, 2.0], directions=4, seed=3)
    g = torch.Generator().manual_seed(3)
    directions = [flatness.random_direction(plain.model, g) for _ in range(4)]
    expected = [[float(plain.flat_loss(plain.flat() + s * v)) for s in (0, 2)] for v in directions]
    np.testing.assert_allclose(line.loss, expected)
    np.testing.assert_allclose(line.mean_loss, np.mean(expected, 0))
    np.testing.assert_allclose(line.spread, np.std(expected, 0, ddof=1), atol=1e-12)
    assert all(float(v.norm()) == pytest.approx(1.0) for v in directions)
    assert line.error is None


def test_test_error_is_the_share_of_wrong_classes(plain):
    args = (plain.model, plain.loss, plain.data)
    line = flatness.interpolate_random(*args, [0.0], directions=1, test=plain.data)
    device = plain.flat().device
    wrong = plain.model(plain.x.to(device)).argmax(1) != plain.y.to(device)
    assert line.error[0, 0] == pytest.approx(float(wrong.double().mean()))


def test_filter_directions_have_the_norms_of_the_filters(problem):
    flat = flatness.random_direction(problem.model, torch.Generator().manual_seed(0), "filter")
    parameters = list(problem.model.parameters())
    for part, p in zip(flat.split([q.numel() for q in parameters]), parameters, strict=True):
        if p.ndim == 1:
            assert not part.any()
        else:
            rows = part.view_as(p).norm(dim=1)
            torch.testing.assert_close(rows, p.detach().norm(dim=1))


def test_filter_lines_do_not_see_the_scale_of_relu_layers(device):
    def curve(scale):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
        model.to(device, torch.float64)
        with torch.no_grad():
            model[0].weight.mul_(scale)
            model[2].weight.div_(scale)
        x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        data = x, (x[:, 0] > 0).long()
        loss = nn.functional.cross_entropy
        lines = (
            flatness.interpolate_random(model, loss, data, [0.5], directions=2, normalise=n)
            for n in ("filter", "euclidean")
        )
        return [line.mean_loss[0] for line in lines]

    (filter_1, plain_1), (filter_10, plain_10) = curve(1.0), curve(10.0)
    assert filter_1 == pytest.approx(filter_10)
    assert plain_1 != pytest.approx(plain_10, rel=1e-3)


def test_refresh_is_called_at_every_point_and_stated(device, unchanged):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(device)
    x, y = torch.randn(16, 3), torch.randint(0, 2, (16,))
    unchanged(model)
    calls = []

    def refresh(net):
        calls.append(1)
        net.train()
        net[1].reset_running_stats()
        net[1].momentum = None
        with torch.no_grad():
            net(x.to(device))

    args = (model, nn.functional.cross_entropy, (x, y), [0.0, 3.0])
    fresh = flatness.interpolate_random(*args, directions=2, refresh=refresh)
    fixed = flatness.interpolate_random(*args, directions=2)
    assert len(calls) == 4
    assert "refreshed" in fresh.batchnorm
    assert not np.allclose(fresh.loss, fixed.loss)


def test_bad_requests_are_refused(plain):
    state = plain.model.state_dict()
    args = (plain.model, plain.loss, plain.data)
    with pytest.raises(ConfigError, match="differ"):
        flatness.interpolate_between(*args, state, state)
    with pytest.raises(ConfigError, match=r"0\.weight"):
        flatness.interpolate_between(*args, {}, state)
    with pytest.raises(ConfigError, match="normalise='layer'"):
        flatness.interpolate_random(*args, [0.0], normalise="layer")
    with pytest.raises(ConfigError, match="refresh"):
        flatness.interpolate_random(*args, [0.0], refresh="maybe")


def test_the_model_is_restored_after_an_error(plain, unchanged):
    unchanged(plain.model)

    def broken(model):
        raise RuntimeError("refresh failed")

    with pytest.raises(RuntimeError, match="refresh failed"):
        flatness.interpolate_random(
            plain.model, plain.loss, plain.data, [5.0], refresh=broken, directions=1
        )


def test_surface_passes_through_its_points_and_projects_samples(problem, unchanged):
    a, b, c, extra = states(problem, 4)
    unchanged(problem.model)
    args = (problem.model, problem.loss, problem.data)
    surface = flatness.loss_surface(
        *args, [a, b, c], samples={"b": b, "extra": extra}, resolution=4
    )
    flats = [flat_state(problem, s) for s in (a, b, c, extra)]
    for i in (1, 2):
        distance = float((flats[i] - flats[0]).norm())
        assert np.linalg.norm(surface.points[i]) == pytest.approx(distance)
    np.testing.assert_allclose(surface.samples[0], surface.points[1], atol=1e-9)
    assert surface.residuals[0] == pytest.approx(0.0, abs=1e-7)
    basis = torch.linalg.qr(torch.stack([flats[1] - flats[0], flats[2] - flats[0]], 1)).Q
    offset = flats[3] - flats[0]
    away = float((offset - basis @ (basis.T @ offset)).norm())
    assert surface.residuals[1] == pytest.approx(away)


def test_surface_loss_is_the_loss_at_the_grid_point(plain):
    a, b, c = states(plain, 3)
    args = (plain.model, plain.loss, plain.data)
    surface = flatness.loss_surface(*args, [a, b, c], resolution=3)
    fa, fb, fc = (flat_state(plain, s) for s in (a, b, c))
    # Solve for the grid point in the basis (b−a, c−a) of the plane.
    place = np.array([surface.x[2], surface.y[1]])
    weights = np.linalg.solve(surface.points[1:].T, place)
    point = fa + weights[0] * (fb - fa) + weights[1] * (fc - fa)
    assert surface.loss[1, 2] == pytest.approx(float(plain.flat_loss(point)))


def test_surface_refuses_a_line(plain):
    a, b = states(plain, 2)
    middle = {k: (a[k] + b[k]) / 2 for k in a}
    args = (plain.model, plain.loss, plain.data)
    with pytest.raises(ConfigError, match="one line"):
        flatness.loss_surface(*args, [a, b, middle])
    with pytest.raises(ConfigError, match="three states"):
        flatness.loss_surface(*args, [a, b])

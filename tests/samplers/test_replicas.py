"""Replicas and their guide: equations step by step, distributions in closed form, resume, refusals.

A z-score over the bound of 4.5 has a false-alarm rate of 7e-6; seeds are fixed.
"""

import copy
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import nn

from entropy_mcmc import EntropyMCMC, noise, schedules, theory
from entropy_mcmc.diagnostics import Thermometer, judge
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.samplers.kernel import compiled
from entropy_mcmc.samplers.replicas import GUIDE_STREAM
from scenarios import covariance_z

BOUND = 4.5
SEED = 11
COMMON = {"lr": 0.3, "num_data": 10, "temperature": 0.7, "weight_decay": 0.05, "eta": 0.2}
RULES = {
    "euler": {},
    "momentum": {"momentum": 0.6},
    "lm": {"integrator": "lm"},
    "baoab": {"momentum": 0.6, "integrator": "baoab"},
}
every_rule = pytest.mark.parametrize("rule", RULES)


def parameter(size=30, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return nn.Parameter(torch.randn(size, generator=generator, dtype=dtype))


def slope(theta, number):
    """The gradient of replica `number`, whose mini-batch is its own."""
    return theta + 0.1 * (number + 1) * np.sin(theta)


def never(step, number):
    """When replica `number` has no gradient."""
    return False


def now_and_then(step, number):
    """Replica 0 rests in every other round, replica 1 in two of three, once also at the start."""
    return step % 2 == 0 if number == 0 else step % 3 > 0


def constant(step):
    """lr of every round, in units of `COMMON`'s."""
    return 1.0


def falling(step):
    """A lr that falls by a third in every round, as at the end of a cosine."""
    return (2 / 3) ** step


def play_round(param, sampler, rests=never, rate=constant):
    sampler.param_groups[0]["lr"] = COMMON["lr"] * rate(sampler.param_groups[0]["step"])
    for number in range(sampler.num_replicas):
        assert sampler.current_replica == number
        param.grad = param.detach() + 0.1 * (number + 1) * param.detach().sin()
        if rests(sampler.param_groups[0]["step"], number):
            param.grad = None
        sampler.step()


def shown(param, sampler):
    """The replicas and the guide, as rows."""
    rows = []
    for number in range(sampler.num_replicas):
        with sampler.replica(number):
            rows.append(param.detach().double().numpy().copy())
    with sampler.guide():
        rows.append(param.detach().double().numpy().copy())
    return np.stack(rows)


def normals(step, stream, inner, size):
    schedule = noise.step_schedule(SEED, step, stream, inner)
    counters = noise.counters(0, 0, size, torch.device("cpu"))
    return noise.normal_pair(schedule, *counters)[0].double().numpy()


def naive_chain(theta, y, rounds, options, every=1, rests=never, rate=constant):
    """The equations of `replicas.py`, all variables from the old values, one array each.

    `left` are the numbers of the noise of which half waits for a variable's next move, `made` the
    lr of the round with which a velocity was made: at temperature T it scales with √lr.
    """
    h = {**COMMON, "momentum": 0.0, "integrator": "euler", **options}
    N, mu, tie = h["num_data"], h["momentum"], 1 / (h["eta"] * h["num_data"])
    z, v = np.stack([theta] * (y + 1)), np.zeros((y + 1, theta.size))
    waiting = np.zeros_like(theta)
    left, made = [0] * (y + 1), [0.0] * (y + 1)

    def move(k, gradient, step, lr):
        v[k] *= np.sqrt(lr / made[k]) if made[k] else 1.0
        made[k] = lr
        scale = np.sqrt(2 * lr * h["temperature"] * (1 - mu) / N)
        address = (0, k) if k < y else (GUIDE_STREAM, 0)
        eps = normals(step, *address, theta.size)
        if h["integrator"] == "baoab":
            v[k] -= 2 / (1 + mu) * lr * gradient
            z[k] += v[k] / 2
            v[k] = mu * v[k] + scale * eps
            z[k] += v[k] / 2
            return
        if h["integrator"] == "lm":
            shared = [normals(number, *address, theta.size) for number in (left[k], step + 1)]
            eps, left[k] = sum(shared) / 2, step + 1
        v[k] = mu * v[k] - lr * gradient + scale * eps
        z[k] += v[k]

    for step in range(rounds):
        old = z.copy()
        waiting += (old[:y] - old[y]).sum(0)
        for k in [k for k in range(y) if not rests(step, k)]:
            gradient = slope(old[k], k) + h["weight_decay"] * old[k] + tie * (old[k] - old[y])
            move(k, gradient, step, h["lr"] * rate(step))
        if (step + 1) % every == 0:
            move(y, -tie * waiting / every, step, every * h["lr"] * rate(step))
            waiting[:] = 0
    return z


@every_rule
@pytest.mark.parametrize("y", [2, 4])
def test_equals_the_equations(rule, y):
    param = parameter()
    start = param.detach().numpy().copy()
    sampler = EntropyMCMC([param], **COMMON, **RULES[rule], replicas=y, seed=SEED)
    for _ in range(5):
        play_round(param, sampler)
    expected = naive_chain(start, y, 5, RULES[rule])
    np.testing.assert_allclose(shown(param, sampler), expected, rtol=1e-9, atol=1e-11)
    assert sampler.param_groups[0]["step"] == 5


@every_rule
def test_a_guide_that_moves_in_every_second_round_equals_its_equations(rule):
    param = parameter()
    start = param.detach().numpy().copy()
    options = {**RULES[rule], "eta": 0.4}
    sampler = EntropyMCMC([param], **{**COMMON, **options}, replicas=2, exchange_every=2, seed=SEED)
    for _ in range(7):
        play_round(param, sampler)
    expected = naive_chain(start, 2, 7, options, every=2)
    np.testing.assert_allclose(shown(param, sampler), expected, rtol=1e-9, atol=1e-11)


@every_rule
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_falling_lr_leaves_the_guide_at_its_temperature(rule, every):
    """Its velocity is rescaled by the lr of its own last move, not of the last round."""
    param = parameter()
    start = param.detach().numpy().copy()
    options = {**RULES[rule], "eta": 0.6}
    sampler = EntropyMCMC(
        [param], **{**COMMON, **options}, replicas=2, exchange_every=every, seed=SEED
    )
    for _ in range(9):
        play_round(param, sampler, rate=falling)
    expected = naive_chain(start, 2, 9, options, every, rate=falling)
    np.testing.assert_allclose(shown(param, sampler), expected, rtol=1e-9, atol=1e-11)


@every_rule
@pytest.mark.parametrize("every", [1, 2])
def test_replicas_that_rest_equal_their_equations(rule, every):
    """A replica without a gradient stays and pulls the guide; the noise of a rest is not lost."""
    param, other = parameter(), nn.Parameter(torch.zeros(2))
    start = param.detach().numpy().copy()
    options = {**RULES[rule], "eta": 0.4}
    sampler = EntropyMCMC(
        [param, other], **{**COMMON, **options}, replicas=2, exchange_every=every, seed=SEED
    )
    other.grad = torch.zeros(2)
    play_round(param, sampler)  # the guide begins with the first gradient
    for _ in range(11):
        play_round(param, sampler, now_and_then)
    begun = lambda step, number: step > 0 and now_and_then(step, number)  # noqa: E731
    expected = naive_chain(start, 2, 12, options, every, begun)
    np.testing.assert_allclose(shown(param, sampler), expected, rtol=1e-9, atol=1e-11)


def joint_hessian(h, eta, y):
    A = np.diag([h + 1 / eta] * y + [y / eta])
    A[:y, y] = A[y, :y] = -1 / eta
    return A


def closed_covariance(alpha, h, eta, y, temperature, **settings):
    moments = theory.replica_covariance(alpha, h, eta, y, temperature, **settings)
    sigma = np.full((y + 1, y + 1), moments.between)
    np.fill_diagonal(sigma, moments.theta)
    sigma[y, :] = sigma[:, y] = moments.cross
    sigma[y, y] = moments.guide
    return sigma


@pytest.mark.parametrize("y", [1, 2, 4])
@pytest.mark.parametrize(("alpha", "h", "eta"), [(0.1, 1.0, 0.5), (0.01, 20.0, 0.05)])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_closed_form_solves_the_lyapunov_equation(y, alpha, h, eta, momentum):
    """Of (z, v): v ← μv − αAz + √(2α(1−μ)T)·ε, z ← z + v; and T·A⁻¹ for averaged noise."""
    A, one, T = joint_hessian(h, eta, y), np.eye(y + 1), 0.3
    kick = np.hstack([-alpha * A, momentum * one])
    step = np.vstack([kick + np.hstack([one, 0 * one]), kick])
    heat = 2 * alpha * (1 - momentum) * T * np.kron(np.ones((2, 2)), one)
    sigma = solve_discrete_lyapunov(step, heat)[: y + 1, : y + 1]
    np.testing.assert_allclose(
        closed_covariance(alpha, h, eta, y, T, momentum=momentum), sigma, rtol=1e-8
    )
    exact = closed_covariance(alpha, h, eta, y, T, momentum=momentum, integrator="baoab")
    np.testing.assert_allclose(exact, T * np.linalg.inv(A), rtol=1e-8)
    moments = theory.replica_covariance(alpha, h, eta, y, T, momentum)
    weights = np.array([1 / y] * y + [-1.0])
    assert moments.difference == pytest.approx(weights @ sigma @ weights, rel=1e-8)


@every_rule
@pytest.mark.parametrize("y", [1, 2, 4])
def test_distribution_of_replicas_and_guide(rule, y):
    """Joint covariance of 20,000 coordinates after 50 rounds, at the step size used.

    Bound 4.5 over at most 15 moments. The slowest variance is off by e^{-2·50·0.06·1.6} = 7e-5.
    """
    n, h, eta, T, lr, size = 10, 10.0, 0.5, 0.4, 0.6, 20_000
    param = nn.Parameter(torch.zeros(size))
    options = {"lr": lr, "num_data": n, "eta": eta, "temperature": T, **RULES[rule]}
    sampler = EntropyMCMC([param], **options, replicas=y, seed=3)
    for _ in range(50 * y):
        param.grad = h / n * param.detach()
        sampler.step()
    momentum = RULES[rule].get("momentum", 0.0)
    integrator = RULES[rule].get("integrator", "euler")
    sigma = closed_covariance(lr / n, h, eta, y, T, momentum=momentum, integrator=integrator)
    assert np.abs(covariance_z(shown(param, sampler), sigma)).max() < BOUND


def stationary_covariance(alpha, h, eta, y, T, every, rests=never, rounds=1, **settings):
    """Σ = MΣMᵀ + Q of `rounds` rounds of replicas and guide, after an exchange.

    The state of one coordinate is z, v and the noise of which half is left, of all y+1 variables.
    Each is a row of coefficients: of the old state, then of standard normals, one for each move.
    """
    mu, integrator = settings.get("momentum", 0.0), settings.get("integrator", "euler")
    size, moves = 3 * (y + 1), iter(range(3 * (y + 1), 10**6))
    z, v, half = np.eye(size, size + rounds * (y + 1)).reshape(3, y + 1, -1).copy()
    waiting = np.zeros_like(z[0])

    def move(k, slope, step):
        scale, normal = np.sqrt(2 * step * T * (1 - mu)), np.zeros_like(z[0])
        normal[next(moves)] = 1.0
        eps = (half[k] + normal) / 2 if integrator == "lm" else normal
        half[k] = normal
        if integrator == "baoab":
            kicked = v[k] - 2 / (1 + mu) * step * slope
            v[k] = mu * kicked + scale * normal
            z[k] += (kicked + v[k]) / 2
            return
        v[k] = mu * v[k] - step * slope + scale * eps
        z[k] += v[k]

    for number in range(rounds):
        old = z.copy()
        waiting += (old[:y] - old[y]).sum(0)
        for k in [k for k in range(y) if not rests(number, k)]:
            move(k, h * old[k] + (old[k] - old[y]) / eta, alpha)
        if (number + 1) % every == 0:
            move(y, -waiting / (eta * every), every * alpha)
            waiting[:] = 0
    new = np.concatenate([z, v, half])
    M, B = new[:, :size], new[:, size:]
    return solve_discrete_lyapunov(M, B @ B.T, method="direct")[: y + 1, : y + 1]


@every_rule
def test_the_linear_map_has_the_closed_form(rule):
    """At k = 1, where `theory` derives it otherwise."""
    args = 0.06, 1.0, 0.5, 3, 0.4
    sigma = stationary_covariance(*args, 1, **RULES[rule])
    np.testing.assert_allclose(sigma, closed_covariance(*args, **RULES[rule]), rtol=1e-8)


@every_rule
@pytest.mark.parametrize(
    ("every", "rests", "period"), [(2, never, 2), (3, never, 3), (1, now_and_then, 6)]
)
def test_distribution_where_not_all_move_in_every_round(rule, every, rests, period):
    """Joint covariance of 20,000 coordinates, of two replicas, at the step size used.

    Bound 4.5 over six moments. After 96 rounds the map leaves less than 2e-4 of the start.
    """
    n, h, eta, T, lr, size, y = 10, 10.0, 0.5, 0.4, 0.5, 20_000, 2
    param, other = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(2))
    other.grad = torch.zeros(2)
    options = {"lr": lr, "num_data": n, "eta": eta, "temperature": T, **RULES[rule]}
    sampler = EntropyMCMC([param, other], **options, replicas=y, exchange_every=every, seed=3)
    for call in range(96 * y):
        rests_now = rests(call // y, call % y)
        param.grad = None if rests_now else h / n * param.detach()
        sampler.step()
    sigma = stationary_covariance(lr / n, h, eta, y, T, every, rests, rounds=period, **RULES[rule])
    assert np.abs(covariance_z(shown(param, sampler), sigma)).max() < BOUND


def test_the_table_of_exchanges_in_the_docs_is_of_these_equations():
    text = (Path(__file__).parents[2] / "docs" / "beyond.md").read_text(encoding="utf-8")
    head, *rows = re.findall(
        r"^\| (?:Var|`\").*\|$", text.partition("**The guide less often**")[2], re.M
    )
    every = [int(k) for k in re.findall(r"k = (\d+)", head)]
    settings = {"euler": RULES["euler"], "lm": RULES["lm"], "baoab": RULES["baoab"]}
    for row, rule in zip(rows, settings.values(), strict=True):
        cells = [tuple(map(float, pair)) for pair in re.findall(r"(0\.\d{3}), (0\.\d{3})", row)]
        for k, shown_values in zip(every, cells, strict=True):
            sigma = stationary_covariance(0.02, 1.0, 0.5, 2, 1.0, k, rounds=k, **rule)
            assert (round(sigma[0, 0], 3), round(sigma[2, 2], 3)) == shown_values


def test_one_replica_is_the_paper_bit_for_bit():
    chains = []
    for options in ({}, {"replicas": 1, "exchange_every": 3}):
        param = parameter()
        sampler = EntropyMCMC([param], **COMMON, **options, seed=SEED)
        for _ in range(4):
            param.grad = param.detach().sin()
            sampler.step()
        chains.append(shown(param, sampler))
    assert np.array_equal(*chains)


def test_replicas_have_noise_of_their_own():
    """Correlations between all moves of two rounds without drift: |z| < 4.5 each."""
    param = nn.Parameter(torch.zeros(40_000))
    sampler = EntropyMCMC([param], lr=0.1, num_data=1, eta=1e9, replicas=3, seed=1)
    before, moves = shown(param, sampler), []
    for _ in range(2):
        for _ in range(3):
            param.grad = torch.zeros_like(param)
            sampler.step()
        after = shown(param, sampler)
        moves.append(after - before)
        before = after
    z = np.corrcoef(np.concatenate(moves)) * np.sqrt(param.numel())
    assert np.abs(z - np.diag(np.diag(z))).max() < BOUND


# As an optimizer.


def two_groups(width=4, **options):
    net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2)).double()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p))
    groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.1}]
    sampler = EntropyMCMC(groups, **{**COMMON, **options}, replicas=3, seed=5)
    return net, sampler


def train(net, sampler, calls, start=0):
    for call in range(start, start + calls):
        g = torch.Generator().manual_seed(call)
        x, y = torch.randn(8, 3, generator=g), torch.randint(2, (8,), generator=g)
        sampler.zero_grad()
        nn.functional.cross_entropy(net(x.to(net[0].weight)), y).backward()
        sampler.step()


@every_rule
@pytest.mark.parametrize("calls", [6, 7])
def test_resumes_bit_for_bit_also_within_a_round(rule, calls, tmp_path):
    options = {**RULES[rule], "exchange_every": 2, "eta": 0.4}
    whole, reference = two_groups(**options)
    train(whole, reference, 13)
    net, first = two_groups(**options)
    train(net, first, calls)
    torch.save([net.state_dict(), first.state_dict()], tmp_path / "a.pt")
    weights, state = torch.load(tmp_path / "a.pt", weights_only=True)
    fresh, second = two_groups(**options)
    fresh.load_state_dict(weights)
    second.load_state_dict(state)
    twin = copy.deepcopy((net, first))
    for resumed in ((fresh, second), twin):
        train(*resumed, 13 - calls, start=calls)
        assert resumed[1].current_replica == reference.current_replica
        for p, q in zip(resumed[0].parameters(), whole.parameters(), strict=True):
            assert torch.equal(p, q)
            for name, value in reference.state[q].items():
                assert torch.equal(resumed[1].state[p][name], value), name


@pytest.mark.skipif(not compiled.available("cpu"), reason="no compiler on this machine")
@pytest.mark.parametrize(
    ("rule", "burn_in"),
    [("baoab", 0), *(pytest.param(rule, 3, marks=pytest.mark.soak) for rule in RULES)],
)
def test_compiled_replicas_equal_eager_ones(rule, burn_in, monkeypatch):
    """Three rounds in float32, also after one of burn-in; the guide moves in every second one."""
    moved = []
    plain = compiled.run
    monkeypatch.setattr(compiled, "run", lambda *args: moved.append(args[0]) or plain(*args))
    chains = []
    for fused in (False, True):
        net, sampler = two_groups(100, **RULES[rule], exchange_every=2, eta=0.4, fused=fused)
        net.float()
        for calls, start, coupled in ((burn_in, 0, False), (9, burn_in, True)):
            for group in sampler.param_groups:
                group.update(noise=coupled, coupled=coupled)
            train(net, sampler, calls, start=start)
        chains.append([shown(p, sampler) for p in net.parameters()])
        # The calls, and at least one move of the guide, of two groups.
        assert len(moved) >= 2 * (burn_in + 9 + 1) if fused else not moved
    for eager, fast in zip(*chains, strict=True):
        np.testing.assert_allclose(fast, eager, rtol=1e-5, atol=1e-5)


def test_pulls_that_wait_are_shared_out_among_processes_once(monkeypatch):
    """A state of one process between two exchanges, loaded by each of three."""
    options = {"exchange_every": 2, "eta": 0.4}
    net, sampler = two_groups(**options)
    train(net, sampler, 9)
    weight = net[0].weight
    assert sampler.state[weight]["pull"].abs().max() > 0
    shares = []
    for rank in range(3):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda group, rank=rank: rank)
        fresh, own = two_groups(**options)
        own._ranks = "three processes"
        own.load_state_dict(sampler.state_dict())
        assert torch.equal(fresh[0].weight, sampler.replica_value(weight, rank))
        shares.append(own.state[fresh[0].weight]["pull"])
    assert torch.equal(sum(shares), sampler.state[weight]["pull"])


def test_lr_is_that_of_the_rounds_first_step():
    """A schedule that steps with every mini-batch does not part the replicas of a round."""
    chains = []
    for changes in ([0.3, 0.2, 0.1, 0.25, 0.2, 0.1], [0.3] * 3 + [0.25] * 3):
        param = parameter()
        sampler = EntropyMCMC([param], **COMMON, momentum=0.5, replicas=3, seed=SEED)
        for call, lr in enumerate(changes):
            sampler.param_groups[0]["lr"] = lr
            param.grad = param.detach() + 0.1 * (call % 3) * param.detach().sin()
            sampler.step()
        chains.append(shown(param, sampler))
    assert np.array_equal(*chains)


def test_bfloat16_replicas_have_float32_masters():
    param = nn.Parameter(torch.ones(500, dtype=torch.bfloat16))
    sampler = EntropyMCMC([param], **COMMON, replicas=2, seed=1)
    for _ in range(4):
        param.grad = torch.ones_like(param)
        sampler.step()
    state = sampler.state[param]
    assert {value.dtype for value in state.values()} == {torch.float32}
    assert torch.equal(param, state["theta_0"].bfloat16())
    with sampler.replica(1):
        assert torch.equal(param, state["theta_1"].bfloat16())
    assert torch.equal(param, state["theta_0"].bfloat16())


def test_parameters_that_get_no_gradient_stay():
    used, unused = parameter(), parameter()
    sampler = EntropyMCMC([used, unused], **COMMON, replicas=2, seed=1)
    before = unused.detach().clone()
    for _ in range(4):
        used.grad = torch.ones_like(used)
        sampler.step()
    for block in (sampler.replica(0), sampler.replica(1), sampler.guide()):
        with block:
            assert torch.equal(unused, before)
    assert not sampler.state.get(unused)


def test_blocks_show_and_restore_and_are_closed():
    net, sampler = two_groups()
    train(net, sampler, 4)
    before = [p.detach().clone() for p in net.parameters()]
    seen = []
    for number in range(3):
        with sampler.replica(number):
            seen.append(net[0].weight.detach().clone())
            for call in (sampler.step, sampler.state_dict, sampler.guide().__enter__):
                with pytest.raises(StateError, match=r"inside `with sampler.replica\(\d\):`"):
                    call()
    assert torch.equal(seen[1], before[0])  # the second replica is in the model
    assert len({tuple(s.flatten().tolist()) for s in seen}) == 3
    for p, value in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, value)
    with pytest.raises(ConfigError, match="from 0 to 2, the replicas of this sampler, got"):
        sampler.replica(3).__enter__()
    with sampler.replica(2.0):
        assert torch.equal(net[0].weight, seen[2])
    for number in (0.5, -1, "1", None):
        with pytest.raises(ConfigError, match="number must be a"):
            sampler.replica(number).__enter__()


def test_a_skipped_amp_step_keeps_the_turn():
    net, sampler = two_groups()
    net.float()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for bad in (True, False):
        sampler.zero_grad()
        scaler.scale(net(torch.ones(4, 3)).sum()).backward()
        if bad:
            net[0].weight.grad[0, 0] = float("inf")
        scaler.step(sampler)
        scaler.update()
    assert sampler.current_replica == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guide_update": "exact"}, "guide_update must be 'euler' with replicas=2"),
        ({"guide_update": "collapsed"}, "guide_update must be 'euler' with replicas=2"),
        ({"guide_weight_decay": 0.1}, "guide_weight_decay must be 0 with replicas=2"),
        ({"replicas": 0}, "replicas must be"),
        ({"replicas": 2.5}, "replicas must be"),
        ({"exchange_every": 0}, "exchange_every must be"),
        (
            {"eta": 0.044},
            r"eta must be greater than \(replicas\+1\)/2·lr/\(.*\) = 0.045 .*; "
            "use a larger eta, a smaller lr or fewer replicas",
        ),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ConfigError, match=message):
        EntropyMCMC([parameter()], **{**COMMON, "replicas": 2, **options})


def test_the_warning_of_a_tight_coupling_names_what_it_counts():
    with pytest.warns(
        UserWarning, match=r"^\(replicas\+1\)·exchange_every/2·lr/\(eta·num_data\) = 0.6"
    ):
        EntropyMCMC([parameter()], **{**COMMON, "eta": 0.075}, replicas=2)


def test_the_coupling_limit_is_the_edge_of_stability():
    """At h = 0: just above (y+1)·lr/(2N) the chain stays, below it would grow by 2 % a round."""
    for y in (1, 2, 4):
        limit = (y + 1) / 2 * 0.1
        with pytest.raises(ConfigError, match="eta must be greater"):
            EntropyMCMC([parameter()], lr=0.1, num_data=1, eta=limit, replicas=y)
        param = nn.Parameter(torch.zeros(1000, dtype=torch.float64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sampler = EntropyMCMC([param], lr=0.1, num_data=1, eta=1.01 * limit, replicas=y, seed=0)
            for _ in range(200 * y):
                param.grad = torch.zeros_like(param)
                sampler.step()
        rows = shown(param, sampler)
        spread = rows[:y].mean(0) - rows[y]
        stationary = 1.01 * limit / y / (1 - 1 / 1.01)
        assert spread.var() == pytest.approx(stationary, rel=5 * (2 / 1000) ** 0.5)


def test_groups_with_other_replicas_are_refused():
    groups = [{"params": [parameter()]}, {"params": [parameter()], "replicas": 3}]
    with pytest.raises(ConfigError, match="replicas must be the same in all groups, got"):
        EntropyMCMC(groups, **COMMON, replicas=2)


def test_explain_of_replicas():
    sampler = EntropyMCMC([parameter()], lr=0.1, num_data=100, eta=0.04, replicas=4)
    group = sampler.explain().groups[0]
    assert group.margin == pytest.approx(2.5 * 0.1 / (0.04 * 100))
    assert group.horizon == pytest.approx(0.04 * 100 / 0.1 / 4)
    assert "θ_1 … θ_4" in group.target
    assert "θ_a ~ exp(4·F(θ_a; η))" in group.target
    auto = EntropyMCMC([parameter()], lr=0.1, num_data=100, eta="auto", replicas=4)
    assert auto.explain().groups[0].horizon == pytest.approx(100)
    assert "guide averages over, rounds       100" in str(auto.explain())
    assert "the guide averages over 100 rounds; Cyclical" in str(auto.explain())


# The thermometer.


def read(y, steps=40, V=0.0, curvature=0.0, **options):
    param = nn.Parameter(torch.zeros(30_000))
    common = {"lr": 0.5, "num_data": 10, "eta": 0.25, "temperature": 0.5, "seed": 2}
    sampler = EntropyMCMC([param], **{**common, **options}, replicas=y)
    thermometer = Thermometer(sampler)
    g = torch.Generator().manual_seed(1)
    for _ in range(steps * y):
        kick = torch.randn(param.shape, generator=g) * V**0.5 / 10
        param.grad = curvature / 10 * param.detach() + kick
        sampler.step()
        thermometer.step()
        if sampler.current_replica:
            assert not thermometer.ready
    return thermometer.read(curvature=curvature)


@every_rule
@pytest.mark.parametrize("y", [2, 4])
def test_the_thermometer_reads_the_temperature_of_replicas(rule, y):
    reading = read(y, curvature=3.0, **RULES[rule])
    assert abs(reading.ratio - 1) < BOUND * reading.error
    assert judge([reading]).kind == "right"


def test_minibatch_heat_of_replicas():
    """The reading is heated by αV/(2(1+y)) before the factor of a finite step, θ in stiff
    directions by αV/2, and in flat ones by y times what the reading shows."""
    y, V, alpha = 3, 20.0, 0.05
    reading = read(y, V=V)
    verdict = judge([reading], V)
    assert abs(verdict.injected.value - 0.5) < BOUND * verdict.injected.error
    assert verdict.minibatch.value == pytest.approx(alpha * V / (2 * (1 + y)), rel=1e-6)
    flat, stiff = verdict.theta_heat
    assert flat.value == pytest.approx(y * verdict.minibatch.value)
    assert stiff.value == pytest.approx(alpha * V / 2, rel=1e-6)


def test_the_thermometer_says_when_it_cannot_read():
    sampler = EntropyMCMC([parameter()], **{**COMMON, "eta": 0.4}, replicas=2, exchange_every=2)
    with pytest.raises(ConfigError, match="use exchange_every=1"):
        Thermometer(sampler)


def test_a_cyclical_schedule_counts_mini_batches():
    """The plain loop of one network: S calls are S mini-batches, whoever they go to."""
    net, sampler = two_groups()
    cycle = schedules.Cyclical(sampler, 12, cycles=2, burn_in=0.5, samples_per_cycle=1)
    due = []
    for call in range(12):
        train(net, sampler, 1, start=call)
        due.append(cycle.step())
    assert sampler.param_groups[0]["step"] == 4
    assert [i for i, d in enumerate(due) if d] == [5, 11]

"""What every sampler must do as an optimizer; a new one in `battery.CASES` gets all of it."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from battery import CASES, GUIDES, NOISY
from entropy_mcmc import SAM, SGLD, EntropyMCMC
from entropy_mcmc.errors import ConfigError, NonFiniteError, StateError

every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
noisy = pytest.mark.parametrize("case", NOISY, ids=lambda c: c.name)
guided = pytest.mark.parametrize("case", GUIDES, ids=lambda c: c.name)


def seeded(case, seed=1):
    return {} if case.sampler is SAM else {"seed": seed}


def network(device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return net.to(device=device, dtype=dtype)


def batch(device="cpu", step=0):
    g = torch.Generator().manual_seed(step)
    return (
        torch.randn(16, 4, generator=g).to(device),
        torch.randint(0, 3, (16,), generator=g).to(device),
    )


def make_closure(net, sampler, data, post=lambda: None):
    def closure():
        sampler.zero_grad()
        weight = next(net.parameters())
        loss = F.cross_entropy(net(data[0].to(weight.dtype)).float(), data[1])
        loss.backward()
        post()
        return loss

    return closure


def train(net, sampler, steps, start=0, post=lambda: None):
    device = next(net.parameters()).device
    losses = []
    for step in range(start, start + steps):
        closure = make_closure(net, sampler, batch(device, step), post)
        losses.append(sampler.step(closure).item())
    return losses


def weights(net):
    return torch.cat([p.detach().flatten().double().cpu() for p in net.parameters()])


@every
def test_returns_the_loss_and_learns(case, device):
    net = network(device)
    sampler = case.make(net.parameters(), **seeded(case))
    before = weights(net)
    losses = train(net, sampler, 5)
    assert all(isinstance(loss, float) for loss in losses)
    assert not torch.equal(weights(net), before)
    assert sampler.param_groups[0]["step"] == 5


@every
def test_without_noise_the_loss_falls(case, device):
    net, options = network(device), dict(seeded(case))
    if "temperature" in case.options:
        options |= {"temperature": 0.0}
    sampler = case.make(net.parameters(), **options)
    data = batch(device)
    closure = make_closure(net, sampler, data)
    losses = [sampler.step(closure).item() for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0]


@every
def test_state_dict_continues_bit_for_bit(case, device, tmp_path):
    whole = network(device)
    reference = case.make(whole.parameters(), **seeded(case))
    train(whole, reference, 7)

    net = network(device)
    first = case.make(net.parameters(), **seeded(case))
    train(net, first, 3)
    torch.save({"sampler": first.state_dict(), "net": net.state_dict()}, tmp_path / "a.pt")

    saved = torch.load(tmp_path / "a.pt", weights_only=True)
    fresh = network(device)
    fresh.load_state_dict(saved["net"])
    second = case.make(fresh.parameters(), **seeded(case, seed=99))
    second.load_state_dict(saved["sampler"])
    train(fresh, second, 4, start=3)
    assert torch.equal(weights(fresh), weights(whole))
    for a, b in zip(fresh.parameters(), whole.parameters(), strict=True):
        assert second.state[a].keys() == reference.state[b].keys()
        for name in second.state[a]:
            assert torch.equal(second.state[a][name], reference.state[b][name])


@every
def test_state_dict_holds_tensors_and_plain_values_only(case):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    train(net, sampler, 2)
    state = sampler.state_dict()
    for entry in state["state"].values():
        assert all(isinstance(value, torch.Tensor) for value in entry.values())
    for group in state["param_groups"]:
        for name, value in group.items():
            assert name == "params" or isinstance(value, (int, float, str, bool))


@every
def test_state_of_another_optimizer_is_refused(case):
    net = network()
    other = torch.optim.Adam(net.parameters())
    with pytest.raises(ConfigError, match="saved by another optimizer"):
        case.make(net.parameters()).load_state_dict(other.state_dict())


@noisy
def test_seeds(case, device):
    nets = [network(device) for _ in range(5)]
    torch.manual_seed(7)
    seeds = [1, 1, 2, None, None]
    chains = []
    for net, seed in zip(nets, seeds, strict=True):
        train(net, case.make(net.parameters(), seed=seed), 3)
        chains.append(weights(net))
    assert torch.equal(chains[0], chains[1])
    assert not torch.allclose(chains[0], chains[2])
    assert not torch.allclose(chains[3], chains[4])


@noisy
def test_noise_entry_and_temperature_are_apart(case):
    quiet, cold = network(), network()
    sampler = case.make(quiet.parameters(), seed=1)
    sampler.param_groups[0]["noise"] = False
    train(quiet, sampler, 3)
    train(cold, case.make(cold.parameters(), seed=1, temperature=0.0), 3)
    assert torch.equal(weights(quiet), weights(cold))
    assert sampler.param_groups[0]["temperature"] == case.options["temperature"]


@every
def test_parameters_without_gradient_are_skipped(case, device):
    net = network(device)
    unused = nn.Parameter(torch.ones(3, device=device))
    frozen = nn.Parameter(torch.ones(3, device=device), requires_grad=False)
    sampler = case.make([*net.parameters(), unused, frozen], **seeded(case))
    train(net, sampler, 3)
    assert torch.equal(unused.detach(), torch.ones(3, device=device))
    assert torch.equal(frozen, torch.ones(3, device=device))


@every
def test_several_groups_have_their_own_options(case):
    net = network()
    params = list(net.parameters())
    sampler = case.make([{"params": params[:2], "lr": 0.0}, {"params": params[2:]}], **seeded(case))
    before = [p.detach().clone() for p in params]
    train(net, sampler, 3)
    moved = [not torch.equal(a, b.detach()) for a, b in zip(before, params, strict=True)]
    assert moved == [False, False, True, True]


@every
def test_a_group_added_later_joins_at_the_current_step(case):
    net, late = network(), nn.Linear(2, 2)
    sampler = case.make(net.parameters(), **seeded(case))
    train(net, sampler, 3)
    sampler.add_param_group({"params": late.parameters()})
    assert sampler.param_groups[1]["step"] == 3
    assert sampler.param_groups[1]["seed"] == sampler.param_groups[0]["seed"]
    train(net, sampler, 2, start=3)


@every
def test_closures(case):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    if case.closure:
        with pytest.raises(ConfigError, match="closure"):
            sampler.step()
    else:
        make_closure(net, sampler, batch())()
        assert sampler.step() is None


@every
@pytest.mark.parametrize(
    "make",
    [
        lambda s: torch.optim.lr_scheduler.StepLR(s, 2, 0.5),
        lambda s: torch.optim.lr_scheduler.CosineAnnealingLR(s, 10),
        lambda s: torch.optim.lr_scheduler.OneCycleLR(s, 0.3, total_steps=10, cycle_momentum=False),
        lambda s: torch.optim.lr_scheduler.LambdaLR(s, lambda t: 1 / (1 + t)),
    ],
    ids=["step", "cosine", "one-cycle", "lambda"],
)
def test_torch_schedulers_drive_it(case, make):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    scheduler = make(sampler)
    rates = set()
    for step in range(6):
        train(net, sampler, 1, start=step)
        scheduler.step()
        rates.add(sampler.param_groups[0]["lr"])
    assert len(rates) >= 3
    assert weights(net).isfinite().all()


@every
def test_copies_continue_the_chain(case):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    train(net, sampler, 2)
    net2, sampler2 = copy.deepcopy((net, sampler))
    train(net, sampler, 2, start=2)
    train(net2, sampler2, 2, start=2)
    assert torch.equal(weights(net), weights(net2))


@every
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_names_parameter_and_step_and_changes_nothing(case, bad):
    net = network()
    sampler = case.make(net.named_parameters(), **seeded(case))
    train(net, sampler, 2)
    before = weights(net)

    def poison():
        net[2].weight.grad[0, 0] = bad

    with pytest.raises(NonFiniteError, match=r"'2.weight' is NaN or infinite at step 2"):
        train(net, sampler, 1, start=2, post=poison)
    assert torch.equal(weights(net), before)


@every
def test_an_exception_in_the_closure_leaves_the_parameters(case):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    before, calls = weights(net), []

    def closure():
        calls.append(1)
        if len(calls) == (2 if case.closure else 1):
            raise KeyError("data ran out")
        return make_closure(net, sampler, batch())()

    with pytest.raises(KeyError):
        sampler.step(closure)
    assert torch.equal(weights(net), before)


@every
def test_refuses_dtypes_and_layouts(case):
    for bad, words in [
        (torch.zeros(2, dtype=torch.float16), "float16"),
        (torch.zeros(2, dtype=torch.complex64), "complex"),
        (torch.zeros(2, 2).to_sparse(), "dense"),
    ]:
        with pytest.raises(ConfigError, match=words):
            case.make([bad.requires_grad_()])


def test_refuses_sparse_gradients():
    embedding = nn.Embedding(5, 2, sparse=True)
    sampler = SGLD(embedding.parameters(), lr=0.1, num_data=10)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ConfigError, match="sparse=False"):
        sampler.step()


NUMBERS = ["lr", "num_data", "eta", "temperature", "weight_decay", "rho", "inner_lr", "damping"]


@every
@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "0.1", None, torch.tensor(0.1)])
def test_refuses_bad_numbers(case, bad):
    for name in [name for name in NUMBERS if name in case.options]:
        if name == "inner_lr" and bad is None:
            continue  # None means: take lr
        with pytest.raises(ConfigError, match=f"{name} must be .*got {name}="):
            case.make([nn.Parameter(torch.zeros(2))], **{name: bad})


@every
def test_refuses_bad_numbers_set_later(case):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    sampler.param_groups[0]["lr"] = -0.1
    with pytest.raises(ConfigError, match=r"lr must be at least 0, got lr=-0.1"):
        train(net, sampler, 1)


@noisy
def test_num_data_is_required_with_a_remedy(case):
    options = {k: v for k, v in case.options.items() if k != "num_data"}
    with pytest.raises(ConfigError, match=r"num_data=len\(train_set\)"):
        case.sampler([nn.Parameter(torch.zeros(2))], **options)


@every
def test_explain_is_a_table(case):
    net = network()
    sampler = case.make(net.parameters(), **seeded(case))
    sampler.explain()  # before the first gradient
    train(net, sampler, 2)
    text = str(sampler.explain())
    for word in ("drift", "coupling", "noise", "stability", "averages", "target", "67"):
        assert word in text
    assert sampler.explain().groups[0].drift > 0


def test_explain_numbers():
    sampler = EntropyMCMC(
        [nn.Parameter(torch.zeros(2))], 0.5, num_data=50_000, eta=4e-4, temperature=1e-4
    )
    group = sampler.explain().groups[0]
    assert group.step_size == pytest.approx(1e-5)
    assert group.margin == pytest.approx(0.025)
    assert group.horizon == pytest.approx(40)
    assert group.noise == pytest.approx((2 * 0.5 * 1e-4 / 50_000) ** 0.5)


@every
def test_bfloat16_keeps_float32_variables(case, device):
    net = network(device, torch.bfloat16)
    sampler = case.make(net.parameters(), **seeded(case))
    train(net, sampler, 3)
    state = sampler.state_dict()
    for p in net.parameters():
        assert {v.dtype for v in sampler.state[p].values()} == {torch.float32}
        assert torch.equal(p.detach(), sampler.state[p]["master"].bfloat16())
    fresh = network(device, torch.bfloat16)
    second = case.make(fresh.parameters(), **seeded(case))
    second.load_state_dict(state)
    for p, q in zip(net.parameters(), fresh.parameters(), strict=True):
        for name, value in sampler.state[p].items():
            assert torch.equal(second.state[q][name], value)


@every
def test_channels_last_parameters_have_the_same_chain(case):
    chains = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        param = nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=memory_format))
        sampler = case.make([param], **seeded(case))

        def closure(param=param):
            param.grad = torch.sin(param.detach())
            return param.detach().sum()

        for _ in range(3):
            sampler.step(closure)
        chains.append(param.detach().contiguous())
    torch.testing.assert_close(chains[0], chains[1], rtol=1e-6, atol=1e-6)


def noise_of(case, change):
    """θ after one step with noise minus θ after it without, under the same gradients."""
    results = []
    for temperature in (case.options["temperature"], 0.0):
        net = network(dtype=torch.float64)
        sampler = case.make(net.parameters(), seed=1, temperature=temperature)
        change(net, sampler)
        results.append(weights(net))
    return results[0] - results[1]


ONE_GRADIENT = [case for case in NOISY if not (case.closure or case.adapts)]


def plain(net, sampler):
    train(net, sampler, 1)


def clipped(net, sampler):
    make_closure(net, sampler, batch())()
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    sampler.step()


def accumulated(net, sampler):
    sampler.zero_grad()
    for x, y in zip(*(part.split(4) for part in batch()), strict=True):
        (F.cross_entropy(net(x.double()), y) / 4).backward()
    sampler.step()


def scaled(net, sampler):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch()
    sampler.zero_grad()
    scaler.scale(F.cross_entropy(net(x.double()), y)).backward()
    scaler.step(sampler)
    scaler.update()


@pytest.mark.parametrize("case", ONE_GRADIENT, ids=lambda c: c.name)
@pytest.mark.parametrize("change", [clipped, accumulated, scaled], ids=lambda f: f.__name__)
def test_gradient_handling_leaves_the_noise_alone(case, change):
    torch.testing.assert_close(noise_of(case, change), noise_of(case, plain), rtol=0, atol=1e-12)


def test_a_skipped_amp_step_does_not_advance_the_chain():
    net = network()
    sampler = SGLD(net.parameters(), lr=0.1, num_data=10, seed=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch()
    scaler.scale(F.cross_entropy(net(x), y)).backward()
    net[0].weight.grad[0, 0] = float("inf")
    before = weights(net)
    scaler.step(sampler)
    scaler.update()
    assert torch.equal(weights(net), before)
    assert sampler.param_groups[0]["step"] == 0


@every
def test_autocast_training_loop(case, device):
    net = network(device)
    sampler = case.make(net.parameters(), **seeded(case))
    x, y = batch(device)

    def closure():
        sampler.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        sampler.step(closure)
    assert weights(net).isfinite().all()


# The guide.


@guided
def test_guide_starts_as_theta_at_the_first_step(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1, lr=0.0)
    with torch.no_grad():
        net[0].weight.add_(1.0)  # changed after construction, before the first step
    train(net, sampler, 1)
    guide = sampler.state[net[0].weight]["guide"]
    if case.name == "emcmc-gibbs":
        assert (guide - net[0].weight).std() < 2 * (0.2 * 0.7) ** 0.5
    else:
        torch.testing.assert_close(guide, net[0].weight.detach())


@guided
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_guide_swaps_in_place_and_back(case, dtype, device):
    net = network(device, dtype)
    sampler = case.make(net.parameters(), seed=1)
    train(net, sampler, 3)
    theta = [p.detach().clone() for p in net.parameters()]
    guide = [sampler.state[p]["guide"].clone() for p in net.parameters()]
    pointers = [p.data_ptr() for p in net.parameters()]
    with sampler.guide():
        assert [p.data_ptr() for p in net.parameters()] == pointers
        for p, g in zip(net.parameters(), guide, strict=True):
            assert torch.equal(p.detach(), g.to(dtype))
    for p, t, g in zip(net.parameters(), theta, guide, strict=True):
        assert torch.equal(p.detach(), t)
        assert torch.equal(sampler.state[p]["guide"], g)


@guided
def test_guide_restores_after_an_exception(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1)
    train(net, sampler, 3)
    before = weights(net)
    with pytest.raises(KeyError), sampler.guide():
        raise KeyError
    assert torch.equal(weights(net), before)
    train(net, sampler, 1, start=3)


@guided
def test_inside_the_guide_the_chain_is_closed(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1)
    train(net, sampler, 1)
    before = weights(net)
    state = sampler.state_dict()
    with sampler.guide():
        for call in (
            lambda: train(net, sampler, 1),
            sampler.state_dict,
            lambda: sampler.load_state_dict(state),
            lambda: sampler.guide().__enter__(),
        ):
            with pytest.raises(StateError, match="leave the block"):
                call()
    assert torch.equal(weights(net), before)


@guided
def test_guide_before_the_first_step_is_theta(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1)
    before = weights(net)
    with sampler.guide():
        assert torch.equal(weights(net), before)


# The refusals of the coupling.


def one(**options):
    return EntropyMCMC([nn.Parameter(torch.zeros(2))], **options)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_coupling_limit_at_construction(momentum):
    limit = 0.5 / ((1 + momentum) * 100)
    with pytest.raises(ConfigError, match='larger eta, a smaller lr, or guide_update="exact"'):
        one(lr=0.5, num_data=100, eta=limit, momentum=momentum)
    with pytest.warns(UserWarning, match="oscillate"):
        one(lr=0.5, num_data=100, eta=limit * 1.001, momentum=momentum)


def test_coupling_warns_above_one_half_only():
    with pytest.warns(UserWarning, match=r"above 0.5"):
        one(lr=0.51, num_data=100, eta=0.01)
    one(lr=0.5, num_data=100, eta=0.01)


def test_coupling_limit_when_lr_changes():
    net = network()
    sampler = EntropyMCMC(net.parameters(), lr=0.1, num_data=100, eta=0.01)
    train(net, sampler, 1)
    sampler.param_groups[0]["lr"] = 1.0
    with pytest.raises(ConfigError, match="eta must be greater than"):
        train(net, sampler, 1)


@pytest.mark.parametrize("update", ["exact", "gibbs"])
def test_other_rules_have_no_coupling_limit_and_no_momentum(update):
    one(lr=0.5, num_data=1, eta=1e-4, guide_update=update)
    for name in ("momentum", "guide_weight_decay"):
        with pytest.raises(ConfigError, match=f"{name} must be 0 with guide_update='{update}'"):
            one(lr=0.5, num_data=1, eta=1e-4, guide_update=update, **{name: 0.5})


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="'euler', 'exact', 'gibbs'"):
        one(lr=0.1, num_data=10, eta=1.0, guide_update="Exact")
    with pytest.raises(ConfigError, match="fused"):
        one(lr=0.1, num_data=10, eta=1.0, fused="always")


def test_memory_beside_the_model_is_the_guide_and_one_velocity_per_variable():
    param = nn.Parameter(torch.zeros(1000))
    for options, tensors in [({}, 1), ({"momentum": 0.9}, 3)]:
        sampler = EntropyMCMC([param], lr=0.1, num_data=10, eta=1.0, **options)
        param.grad = torch.zeros(1000)
        sampler.step()
        assert sum(v.numel() for v in sampler.state[param].values()) == 1000 * tensors


def test_bsam_draws_from_its_gaussian():
    """z-scores over 200,000 elements; |z| < 4.5 has a false-alarm rate of 7e-6 each."""
    case = next(c for c in CASES if c.name == "bsam")
    param = nn.Parameter(torch.zeros(200_000))
    sampler = case.make([param], seed=1)

    def closure():
        param.grad = torch.zeros_like(param)
        return param.detach().sum()

    sampler.step(closure)
    mean, scale = param.detach().clone(), sampler.state[param]["scale"].clone()
    with sampler.sampled(draw=3):
        z = (param.detach() - mean) * (scale * 10 / 0.7).sqrt()
    assert torch.equal(param.detach(), mean)
    assert abs(z.mean().item()) < 4.5 / 200_000**0.5
    assert abs(z.var().item() - 1) < 4.5 * (2 / 200_000) ** 0.5

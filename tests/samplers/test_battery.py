"""What every sampler must do as an optimizer; a new one in `battery.CASES` gets all of it."""

import copy

import pytest
import torch
from torch import nn

from battery import CASES, NOISY
from entropy_mcmc import SGLD, EntropyMCMC
from entropy_mcmc.errors import ConfigError, NonFiniteError
from small_training import batch, make_closure, network, seeded, train, weights

every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
noisy = pytest.mark.parametrize("case", NOISY, ids=lambda c: c.name)


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

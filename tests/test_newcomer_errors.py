"""The mistakes of docs/errors.md, each made on purpose: the message of the page must come.

A row of the page's tables is "mistake | what happens". What stands in double quotes there must be
part of the real message. Rows that begin with "Nothing is said" are mistakes that cannot be seen
from inside; their functions return None after showing what can be noticed.
"""

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from entropy_mcmc import (
    SAM,
    SGLD,
    EntropyMCMC,
    EntropySGD,
    Posterior,
    chains,
    diagnostics,
    metrics,
    sample,
    schedules,
)
from entropy_mcmc.cli import main as command
from entropy_mcmc.errors import EntropyMCMCError

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \|$", re.MULTILINE)
MISTAKES = {}

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
SHORT = {"epochs": 4, "cycles": 1, "batch_size": 20, "samples_per_cycle": 1, "burn_in": 0.5}


def rows():
    """Mistake → what happens, of every table of the page."""
    mistakes = dict(ROW.findall(PAGE.read_text()))
    return {k: v for k, v in mistakes.items() if k != "mistake" and not set(k) <= set("-: ")}


def mistake(title):
    def keep(function):
        MISTAKES[title] = function
        return function

    return keep


def raised(call, kind=EntropyMCMCError):
    with pytest.raises(kind) as caught:
        call()
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def warned(call):
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - the caller compares the message
        call()
    return str(caught[0].message)


def network(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def emcmc(model, **changed):
    options = {"lr": 0.1, "num_data": 40, "eta": 0.05, "temperature": 0.01, "seed": 0, **changed}
    return EntropyMCMC(model.parameters(), **options)


def one_step(model, sampler, x=X, y=Y):
    sampler.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    sampler.step()


def collected(folder, model=None, **options):
    model = network() if model is None else model
    posterior = Posterior.create(folder, model, **options)
    posterior.collect()
    return posterior


@mistake("`num_data` left out")
def _(folder):
    return raised(lambda: emcmc(network(), num_data=None))


@mistake("`eta` left out")
def _(folder):
    with pytest.raises(EntropyMCMCError, match="or eta=horizon·lr/num_data"):
        EntropySGD(network().parameters(), lr=0.1, inner_lr=0.1, num_data=40)
    return raised(lambda: EntropyMCMC(network().parameters(), lr=0.1, num_data=40))


@mistake("`num_data=len(loader)`: the number of batches")
def _(folder):
    text = str(emcmc(network(), num_data=4, eta=0.1).explain())
    assert "U = 4 · mean loss" in text  # the one place where it can be seen


@mistake("a loss that is a sum, not a mean")
def _(folder):
    drifts = []
    for reduction in ("mean", "sum"):
        model = network()
        sampler = emcmc(model)
        F.cross_entropy(model(X), Y, reduction=reduction).backward()
        drifts.append(sampler.explain().groups[0].drift)
    assert drifts[1] == pytest.approx(40 * drifts[0], rel=1e-4)  # visible in explain()


@mistake("`zero_grad` forgotten")
def _(folder):
    model = network()
    sampler = emcmc(model)
    first = None
    for _step in range(2):
        F.cross_entropy(model(X), Y).backward()
        first = first or sampler.explain().groups[0].drift
    assert sampler.explain().groups[0].drift > 1.5 * first


@mistake("`backward` forgotten, or the parameters of another model")
def _(folder):
    return warned(emcmc(network()).step)


@mistake("sampling under `torch.no_grad()`")
def _(folder):
    model = network()
    with torch.no_grad():
        return raised(lambda: one_step(model, emcmc(model)), RuntimeError)


@mistake("a generator of parameters used twice")
def _(folder):
    params = network().parameters()
    SGLD(params, lr=0.1, num_data=40)
    return raised(lambda: SGLD(params, lr=0.1, num_data=40))


@mistake("η smaller than `lr / num_data`")
def _(folder):
    return raised(lambda: emcmc(network(), eta=0.002))


@mistake("η not much larger than `lr / num_data`")
def _(folder):
    return warned(lambda: emcmc(network(), eta=0.004))


@mistake("a negative temperature")
def _(folder):
    return raised(lambda: emcmc(network(), temperature=-1))


@mistake('a number given as text (`lr="0.1"`)')
def _(folder):
    return raised(lambda: emcmc(network(), lr="0.1"))


@mistake("`lr=0`")
def _(folder):
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    one_step(model, emcmc(model, lr=0.0))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@mistake('`momentum` with `guide_update="exact"`')
def _(folder):
    return raised(lambda: emcmc(network(), momentum=0.9, guide_update="exact"))


@mistake("`SAM.step()` without a closure")
def _(folder):
    return raised(SAM(network().parameters(), lr=0.1).step)


@mistake("float16 parameters (`model.half()`)")
def _(folder):
    return raised(lambda: emcmc(network().half()))


@mistake("gradients of a `GradScaler`, but `sampler.step()` instead of `scaler.step(sampler)`")
def _(folder):
    model = network()
    sampler = emcmc(model)
    (2.0**16 * F.cross_entropy(model(X), Y)).backward()
    assert sampler.explain().groups[0].drift > 100  # visible in explain()


@mistake("complex parameters")
def _(folder):
    weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    return raised(lambda: SGLD([weight], lr=0.1, num_data=40))


@mistake("an embedding with `sparse=True`")
def _(folder):
    table = nn.Embedding(5, 2, sparse=True)
    sampler = SGLD(table.parameters(), lr=0.1, num_data=40)
    table(torch.tensor([1])).sum().backward()
    return raised(sampler.step)


@mistake("NaN in the data, or a diverging chain")
def _(folder):
    model = network()
    bad = X.clone()
    bad[3, 1] = float("nan")
    return raised(lambda: one_step(model, emcmc(model), bad))


@mistake("`guide()` inside `guide()`, or `step()` inside it")
def _(folder):
    model = network()
    sampler = emcmc(model)
    one_step(model, sampler)
    with sampler.guide():
        inner = sampler.guide()
        nested = raised(inner.__enter__)
        assert "leave the block first" in raised(sampler.step)
    return nested


@mistake("loading the state of another sampler")
def _(folder):
    model = network()
    other = SGLD(model.parameters(), lr=0.1, num_data=40)
    assert "has no ['eta'" in raised(lambda: other.load_state_dict(emcmc(model).state_dict()))
    return raised(lambda: emcmc(model).load_state_dict(other.state_dict()))


@mistake("a torch scheduler stepped before the sampler")
def _(folder):
    model = network()
    scheduler = torch.optim.lr_scheduler.StepLR(emcmc(model), 10)
    return warned(scheduler.step)


@mistake("more steps than the schedule was made for")
def _(folder):
    cycle = schedules.Cyclical(emcmc(network()), 10, cycles=1, samples_per_cycle=1)
    for _step in range(10):
        cycle.step()
    return raised(cycle.step)


@mistake("more samples than a cycle has noisy steps")
def _(folder):
    return raised(lambda: schedules.Cyclical(emcmc(network()), 20, cycles=4))


@mistake("the folder exists already")
def _(folder):
    collected(folder)
    return raised(lambda: Posterior.create(folder, network()))


@mistake("two processes write into one folder")
def _(folder):
    first = collected(folder)
    text = raised(lambda: Posterior.open(folder, network(), append=True))
    first.close()
    return text


@mistake("collecting with the sampler of another model")
def _(folder):
    posterior = Posterior.create(folder, network())
    other = network()
    sampler = emcmc(other)
    one_step(other, sampler)
    return raised(lambda: posterior.collect(sampler))


@mistake("opening a posterior with another architecture")
def _(folder):
    collected(folder).close()
    return raised(lambda: Posterior.open(folder, network(outputs=3)).predict_proba(X))


@mistake("predicting before anything was collected")
def _(folder):
    return raised(lambda: Posterior.create(folder, network()).predict_proba(X))


@mistake("batch norm not refreshed")
def _(folder):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    return raised(lambda: collected(folder, model).predict_proba(X))


@mistake("an empty loader")
def _(folder):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    posterior = collected(folder, model)
    return raised(lambda: posterior.refresh_batchnorm([]))


@mistake("`model.eval()` forgotten before predicting")
def _(folder):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    posterior = collected(folder, model)
    assert torch.equal(posterior.predict_proba(X), posterior.predict_proba(X))
    assert model.training  # the posterior switches to eval mode by itself, and back


@mistake("data on the CPU, model on a GPU")
def _(folder):
    from entropy_mcmc.posterior.model_inputs import Batches

    # This suite also runs where there is no GPU: the meta device shows where inputs go.
    batches = Batches(X, network().to("meta"), 10)
    assert batches.first().device.type == "meta"
    assert batches.out_device.type == "cpu"


@mistake("inputs of the wrong shape")
def _(folder):
    return raised(lambda: collected(folder).predict_proba(torch.zeros(3, 5)), RuntimeError)


@mistake("a loader that shuffles, for predicting")
def _(folder):
    loader = torch.utils.data.DataLoader(X, batch_size=8, shuffle=True)
    return raised(lambda: collected(folder).predict_proba(loader))


@mistake("a network that ends with a softmax")
def _(folder):
    model = nn.Sequential(network(), nn.Softmax(1))
    posterior = collected(folder / "a", model)
    text = warned(lambda: posterior.predict_proba(X))  # samples side by side
    assert text == warned(lambda: posterior.predict_proba(X, vectorize=False))
    fine = collected(folder / "b", model, output=torch.log).predict_proba(X)
    torch.testing.assert_close(fine, model(X).detach())
    return text


@mistake("a network that returns an object instead of a tensor")
def _(folder):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return {"logits": self.net(x)}

    return raised(lambda: collected(folder, Wrapped()).predict_proba(X))


@mistake("a regression network with 3 outputs")
def _(folder):
    posterior = collected(folder, network(3), likelihood="regression")
    return raised(lambda: posterior.predict(X))


@mistake("`predict_proba` of a regression")
def _(folder):
    return raised(lambda: collected(folder, likelihood="regression").predict_proba(X))


@mistake("a damaged sample file")
def _(folder):
    collected(folder).close()
    file = next((folder / "samples").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-8])
    return raised(lambda: Posterior.open(folder, network()).predict_proba(X))


@mistake("logits given to a metric")
def _(folder):
    return raised(lambda: metrics.nll(network()(X), Y))


@mistake("labels that are floats")
def _(folder):
    return raised(lambda: metrics.accuracy(network()(X).softmax(1), Y.float()))


@mistake("labels counted from 1")
def _(folder):
    def strict():
        raised(lambda: sample(network, (X, Y + 1), run_dir=folder, **SHORT))

    return warned(strict)


@mistake("a thermometer on a sampler without a guide")
def _(folder):
    sampler = SGLD(network().parameters(), lr=0.1, num_data=40)
    return raised(lambda: diagnostics.Thermometer(sampler))


@mistake("a misspelt option of `sample`")
def _(folder):
    return raised(lambda: sample(network, (X, Y), run_dir=folder, learning_rate=0.1))


@mistake("a misspelt option of `emcmc sample`")
def _(folder):
    return exit_message(["sample", "--sampler.learning_rate", "0.1"])


@mistake("an unknown data set")
def _(folder):
    return printed(["sample", "--data.name", "mnits", "--run_dir", str(folder)])


@mistake("a missing data folder")
def _(folder):
    options = ["--data.name", "mnist", "--data.folder", str(folder / "nothing")]
    return printed(["sample", *options, "--run_dir", str(folder / "run")])


@mistake("going on with another config")
def _(folder):
    sample(network, (X, Y), run_dir=folder, **SHORT)
    return raised(lambda: sample(network, (X, Y), run_dir=folder, lr=0.3, **SHORT))


@mistake("infinite values in a table")
def _(folder):
    from entropy_mcmc.sklearn import EntropyMCMCClassifier

    table = np.where(X.numpy() > 2, np.inf, X.numpy())
    return raised(lambda: EntropyMCMCClassifier().fit(table, Y.numpy()), ValueError)


FEW = {"draws": 50, "warm_up_steps": 100, "thin": 1, "seed": 0}


def posterior_of(log_density, init, **options):
    """Few draws of a small model; `x` is the column of its data."""
    return chains.sample(log_density, init, **{**FEW, **options})


def likelihoods(t, x):
    return -((x - t["a"]) ** 2) / 2


@mistake("`log_density` is a loss: the wrong sign")
def _(folder):
    return raised(lambda: posterior_of(lambda t: t["a"] ** 4, {"a": 1.0}))


@mistake("a parameter in `init` that `log_density` does not use")
def _(folder):
    return raised(lambda: posterior_of(lambda t: -(t["a"] ** 2), {"a": 0.0, "b": 0.0}))


@mistake("a density without bounds: a line, for example")
def _(folder):
    return raised(lambda: posterior_of(lambda t: t["a"], {"a": np.array(0.0)}))


@mistake("two parameters of which only the sum matters, without a prior")
def _(folder):
    draws = posterior_of(lambda t: -((t["a"] + t["b"]) ** 2), {"a": 0.0, "b": 0.0})
    assert draws.diagnose().severity == "warning"


@mistake("a mean instead of a sum of log likelihoods, with mini-batches")
def _(folder):
    given = {"data": (X[:, 0],), "batch_size": 10}
    return raised(lambda: posterior_of(lambda t, x: likelihoods(t, x).mean(), {"a": 0.0}, **given))


@mistake("the same with all rows")
def _(folder):
    given = {"data": (X[:, 0],)}
    return warned(lambda: posterior_of(lambda t, x: likelihoods(t, x).mean(), {"a": 0.0}, **given))


@mistake("a prior inside of `log_density`, with mini-batches")
def _(folder):
    def with_prior(t, x):
        return likelihoods(t, x).sum() - t["a"] ** 2 / 200

    given = {"data": (X[:, 0],), "batch_size": 10}
    return raised(lambda: posterior_of(with_prior, {"a": 0.0}, **given))


@mistake("rows that depend on their neighbours (a time series), with mini-batches")
def _(folder):
    def autoregression(t, y):
        return -((y[1:] - t["a"] * y[:-1]) ** 2).sum() / 2

    series = X[:, 0].cumsum(0)
    given = {"data": (series,), "batch_size": 10}
    return raised(lambda: posterior_of(autoregression, {"a": 0.5}, **given))


@mistake("predictions of shape (n, 1), targets of shape (n,)")
def _(folder):
    def broadcast(t, x, y):
        return -((y - x @ t["w"]) ** 2) / 2

    start = {"w": torch.zeros(4, 1)}
    return raised(lambda: posterior_of(broadcast, start, data=(X, Y.float())))


@mistake("`transforms.positive` without parentheses, or its name as text")
def _(folder):
    from entropy_mcmc.chains import transforms

    wrong = [
        raised(lambda g=given: posterior_of(lambda t: -t["s"], {"s": 1.0}, transforms={"s": g}))
        for given in (transforms.positive, "positive")
    ]
    assert wrong[0].split(", got")[0] == wrong[1].split(", got")[0]
    return wrong[0]


@mistake("a start outside of the range of its transform")
def _(folder):
    from entropy_mcmc.chains import transforms

    given = {"transforms": {"s": transforms.positive()}}
    return raised(lambda: posterior_of(lambda t: -t["s"], {"s": -1.0}, **given))


@mistake("a positive parameter without a transform")
def _(folder):
    return raised(lambda: posterior_of(lambda t: t["s"].log() - t["s"], {"s": -1.0}))


@mistake("`return` forgotten in `log_density`")
def _(folder):
    return raised(lambda: posterior_of(lambda t: None, {"s": 1.0}))


@mistake("`math.log` or `float()` in `log_density`, or `if` on a value")
def _(folder):
    wrong = [
        raised(lambda f=function: posterior_of(f, {"s": 1.0}), RuntimeError)
        for function in (lambda t: -math.log(t["s"]), lambda t: -t["s"] if t["s"] > 0 else t["s"])
    ]
    assert all("such as torch.where" in each for each in wrong)
    return wrong[0]


@mistake("a number instead of a tensor")
def _(folder):
    return raised(lambda: posterior_of(lambda t: 3.0, {"s": 1.0}))


@mistake("float64 data, as NumPy has them, beside a start in float32")
def _(folder):
    draws = posterior_of(
        lambda t, x: -((x @ t["w"]) ** 2) / 2, {"w": torch.zeros(4)}, data=(X.double().numpy(),)
    )
    assert draws["w"].dtype == torch.float32


@mistake("a funnel: effects of a hierarchy as parameters")
def _(folder):
    def funnel(t):
        return -(t["v"] ** 2) / 18 - t["x"] ** 2 * torch.exp(-t["v"]) / 2 - t["v"] / 2

    longer = {"draws": 250, "warm_up_steps": 300, "thin": 3, "seed": 2}
    diagnosis = posterior_of(funnel, {"v": 0.0, "x": 0.0}, **longer).diagnose()
    assert diagnosis.severity == "warning"
    return diagnosis.advice[0].sentence


CAPTURE = {}


@pytest.fixture(autouse=True)
def _capture(capsys, monkeypatch):
    monkeypatch.delenv("EMCMC_DATA", raising=False)
    CAPTURE["read"] = capsys.readouterr
    yield
    CAPTURE.clear()


def printed(arguments):
    """What a failing command prints."""
    assert command(arguments) == 1
    return CAPTURE["read"]().err


def exit_message(arguments):
    """What a command prints that does not understand its options."""
    with pytest.raises(SystemExit):
        command(arguments)
    return CAPTURE["read"]().err


def test_page_and_mistakes_are_the_same_list():
    assert list(rows()) == list(MISTAKES)
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize("title", MISTAKES)
def test_mistake(title, tmp_path):
    text = rows()[title]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = MISTAKES[title](tmp_path)
    if message is None:
        assert text.startswith("Nothing is said")
        return
    quoted = re.findall(r"“([^”]+)”", text)
    assert quoted, f"the page quotes no message for {title!r}; it is {message!r}"
    for part in quoted:
        for piece in part.split(" … "):
            assert piece in message, f"{piece!r} is not in {message!r}"

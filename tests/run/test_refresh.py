"""How many batches a run spends on the batch-norm statistics of its samples."""

from dataclasses import replace

import pytest

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.methods import fill
from entropy_mcmc.run.refresh import LEAST, SHARE, refresh_batches
from entropy_mcmc.run.runner import run
from run.workers import tiny_config


def config(method="emcmc", **changes):
    return fill(RunConfig(method=method, **changes))


@pytest.mark.parametrize(
    ("given", "cycle_steps", "samples"),
    [
        (config(roles="both"), 2000, 16),  # eight samples in a cycle, of θ and of the guide
        (config(), 1000, 8),
        (config("sgld"), 1000, 8),
        (config("swa"), 300, 1),  # the mean of all due steps
        (with_parts(config("sgld"), schedule={"samples_per_cycle": 30}), 3000, 30),
    ],
)
def test_samples_share_a_tenth_of_the_run(given, cycle_steps, samples):
    """A forward pass is a third of a step, so 0.3 of them for each step are a tenth of the time."""
    batches = refresh_batches(given, cycle_steps, epoch_steps=10**6)
    assert batches == int(SHARE * cycle_steps / samples) >= LEAST
    assert batches * samples / 3 <= 0.1 * cycle_steps


def test_methods_with_several_gradients_count_them():
    nested = with_parts(config("entropy-sgld"), schedule={"samples_per_cycle": 2})
    gradients = nested.sampler.inner_steps
    assert refresh_batches(nested, 100, 10**6) == int(SHARE * 100 * gradients / 2)


def test_at_least_a_few_and_at_most_an_epoch():
    assert refresh_batches(config(), 10, epoch_steps=100) == LEAST
    assert refresh_batches(config(), 10, epoch_steps=3) == 3
    assert refresh_batches(config(), 10**6, epoch_steps=22) == 22


def test_the_number_can_be_given(tmp_path):
    done = run(replace(tiny_config(tmp_path / "run", "sgld", epochs=8), refresh_batches=3))
    tracked = {int(state["1.num_batches_tracked"]) for state in done.posterior}
    assert tracked == {3}
    with pytest.raises(ConfigError, match=r"refresh_batches must be .* got refresh_batches=0"):
        RunConfig(refresh_batches=0)

"""Kernels that another process compiles are those that the chain then finds in the cache."""

import json
import os
import subprocess
import sys

import pytest
import torch

from entropy_mcmc.samplers import SGLD, EntropyMCMC, registry
from entropy_mcmc.samplers.kernel import ahead, compiled
from entropy_mcmc.samplers.kernel.ahead import compile_ahead

SIZE = 2**17 - 7  # and 7 more
SWITCH = 7630  # `auto` compiles from this step on


@pytest.fixture
def started(monkeypatch):
    jobs = []
    monkeypatch.setattr(ahead, "Compilation", lambda job: jobs.append(job) or job)
    monkeypatch.setattr(compiled, "available", lambda device: True)
    return jobs


def sampler(kind=EntropyMCMC, size=SIZE, **settings):
    own = {"eta": 0.1} if kind is EntropyMCMC else {}
    params = [torch.nn.Parameter(torch.zeros(n)) for n in (size, 3, 4)]
    return kind(params, lr=0.1, num_data=10, seed=0, **own, **settings)


def test_it_starts_only_for_a_chain_that_will_be_compiled(started):
    assert sampler().compiled_from == SWITCH
    assert compile_ahead(sampler(), 10_000) is started[0]
    for other, steps in (
        (sampler(), SWITCH),
        (sampler(size=100), 10**9),
        (sampler(fused=True), 10_000),
        (sampler(fused=False), 10_000),
    ):
        assert compile_ahead(other, steps) is None
    late = sampler()
    late.param_groups[0]["step"] = SWITCH
    assert compile_ahead(late, 10_000) is None


def test_the_job_is_plain_and_names_all_kernels(started):
    compile_ahead(sampler(momentum=0.9), 10_000)
    (job,) = json.loads(json.dumps(started))
    assert job["sampler"] == "emcmc"
    assert job["kinds"] == ["merged", "single"]
    forms = {(form.rule.__name__, kind) for form, kind in ahead._forms(job)}
    assert {kind for _, kind in forms} == {"quiet", *job["kinds"]}
    assert len({rule for rule, _ in forms}) == 2  # with the coupling and without


@pytest.mark.parametrize("name", ["emcmc", "sgld", "sghmc", "psgld"])
def test_every_sampler_of_one_gradient_is_known(started, name):
    kind = registry.load(name)
    compile_ahead(sampler(kind), 10_000)
    assert started[0]["sampler"] == name


@pytest.mark.soak
def test_kernels_of_the_other_process_are_taken_from_the_cache(tmp_path):
    """With an empty cache: compiled there, then found here by the same key."""
    job = ahead._job(sampler(SGLD))
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "entropy_mcmc.samplers.kernel.ahead", json.dumps(job)]
    subprocess.run(command, check=True, env=environment)
    script = f"""
import torch
torch.set_num_threads({torch.get_num_threads()})
from torch._dynamo.utils import counters
from entropy_mcmc import SGLD
theta = torch.nn.Parameter(torch.zeros({SIZE}))
theta.grad = torch.ones_like(theta)
SGLD([theta], lr=0.1, num_data=10, seed=0, fused=True).step()
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "0"]

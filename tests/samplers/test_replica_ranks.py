"""One replica on each of two processes (gloo): the chain is that of one process.

The guide moves in every second round, and a parameter of each replica has no gradient now and then.
"""

import copy
import traceback

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from entropy_mcmc import EntropyMCMC

ROUNDS, SAVED_AFTER = 9, 6  # parameter 0 of replica 0 rests in round 5, of replica 1 in both
RULES = {"lm": {"integrator": "lm"}, "baoab": {"integrator": "baoab", "momentum": 0.6}}
OPTIONS = {"lr": 0.3, "num_data": 10, "eta": 0.4, "temperature": 0.7, "seed": 11}


def make(rule):
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(n, generator=generator).double()) for n in (20, 3)]
    groups = [{"params": [p]} for p in params]
    return params, EntropyMCMC(groups, **OPTIONS, **RULES[rule], replicas=2, exchange_every=2)


def rests(number, step):
    return step > 0 and (step % 2 == 1 if number == 0 else step % 3 > 0)


def call(params, sampler, step):
    """One call of `step`, for the replica that is in the model."""
    number = sampler.current_replica
    for p in params:
        p.grad = p.detach() + 0.1 * (number + 1) * p.detach().sin()
    if rests(number, step):
        params[0].grad = None
    sampler.step()


def shown(params, sampler):
    """The replicas and the guide."""
    rows = []
    for block in (sampler.replica(0), sampler.replica(1), sampler.guide()):
        with block:
            rows.append(torch.cat([p.detach() for p in params]).numpy().copy())
    return np.stack(rows)


def alone(rule, state=None):
    """Both replicas in one process, from the beginning or from a saved state."""
    params, sampler = make(rule)
    if state is not None:
        sampler.load_state_dict(state)
        with torch.no_grad():
            for i, p in enumerate(params):
                p.copy_(state["state"][i]["theta_0"])
    for step in range(0 if state is None else SAVED_AFTER, ROUNDS):
        for _ in range(2):
            call(params, sampler, step)
    return shown(params, sampler)


def rank_main(rank, folder, rule):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    params, sampler = make(rule)
    sampler.spread_replicas()
    for step in range(SAVED_AFTER):
        call(params, sampler, step)
    state = copy.deepcopy(sampler.state_dict())  # torch: of the tensors themselves
    if rank == 0:
        torch.save(state, folder / "state.pt")
    for step in range(SAVED_AFTER, ROUNDS):
        call(params, sampler, step)
    whole = shown(params, sampler)
    params, again = make(rule)
    again.spread_replicas()
    again.load_state_dict(state)
    for step in range(SAVED_AFTER, ROUNDS):
        call(params, again, step)
    assert np.array_equal(shown(params, again), whole), "resumed on two processes"
    np.testing.assert_allclose(whole, alone(rule), rtol=1e-12, atol=1e-12)
    dist.barrier()
    dist.destroy_process_group()


def guarded(rank, folder, rule):
    try:
        rank_main(rank, folder, rule)
    except BaseException:
        (folder / f"error-{rank}").write_text(traceback.format_exc())
        raise


@pytest.mark.parametrize("rule", RULES)
def test_two_processes_are_the_chain_of_one(rule, tmp_path):
    """To 1e-12 in float64; resumed bit for bit on two processes, and to 1e-12 on one."""
    context = torch.multiprocessing.get_context("fork")
    workers = [context.Process(target=guarded, args=(r, tmp_path, rule)) for r in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    errors = "".join(file.read_text() for file in tmp_path.glob("error-*"))
    assert [worker.exitcode for worker in workers] == [0, 0], errors
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert all(("rests" in group) == (rule == "lm") for group in state["param_groups"][:1])
    np.testing.assert_allclose(alone(rule, state), alone(rule), rtol=1e-12, atol=1e-12)

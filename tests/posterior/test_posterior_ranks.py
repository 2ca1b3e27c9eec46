"""Two processes: shards are gathered, rank 0 writes, every rank predicts the same."""

import os
import traceback

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from entropy_mcmc.posterior import Posterior


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def ddp(model):
    return DistributedDataParallel(model)


def fsdp2(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def rank_main(rank, folder, wrap):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = wrap(net())
    posterior = Posterior.create(folder / "a", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert posterior.collect(optimizer, step=1) == 1
    assert posterior.collect(optimizer, step=1) == 0
    _halve(model)
    assert posterior.collect(optimizer) == 1
    # Each rank has its own half of the data; the statistics are those of the whole.
    posterior.refresh_batchnorm([data()[rank]])
    x = data()[0]
    probs = posterior.predict_proba(x)  # every rank takes part
    each = torch.stack([torch.softmax(one(x), dim=1).detach() for one in references()])
    torch.testing.assert_close(probs, each.mean(0))
    torch.testing.assert_close(posterior.sample_predictions(x), each)
    dist.barrier()
    dist.destroy_process_group()


def data():
    return torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1)).unbind()


@torch.no_grad()
def _halve(model):
    for parameter in model.parameters():
        parameter.mul_(0.5)


def references():
    """The two samples, each with its own statistics."""
    models = [net(), net()]
    _halve(models[1])
    for model in models:
        torch.optim.swa_utils.update_bn(data(), model)
    return [model.eval() for model in models]


def fork_rank(rank, folder, wrap):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        rank_main(rank, folder, wrap)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.mark.parametrize("wrap", [ddp, fsdp2])
def test_two_ranks(tmp_path, wrap):
    children = [fork_rank(rank, tmp_path, wrap) for rank in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0]
    model = net()
    posterior = Posterior.open(tmp_path / "a", model)
    assert posterior.roles == ("theta", "theta")
    assert posterior.verify() == 2
    for sample, expected in zip(posterior, references(), strict=True):
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(sample[name], value, msg=name)

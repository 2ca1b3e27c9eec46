"""Samples of replicas: what is stored, what older stores look like, what predictions average."""

import json

import pytest
import torch
from torch import nn

from entropy_mcmc import SGLD, EntropyMCMC, Posterior
from entropy_mcmc.errors import DamagedFileError
from entropy_mcmc.posterior.manifest import checksum

INPUTS = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


def network(norm=False, dtype=torch.float32):
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), *([nn.BatchNorm1d(4)] if norm else []), nn.Linear(4, 2)]
    return nn.Sequential(*layers).to(dtype)


def sampled(path, rounds=3, replicas=3, norm=False, dtype=torch.float32, **options):
    """A posterior into which every round of a plain loop was collected."""
    net = network(norm, dtype)
    sampler = EntropyMCMC(net.parameters(), lr=0.1, num_data=20, eta=0.1, replicas=replicas, seed=1)
    posterior = Posterior.create(path, net, **options)
    for call in range(rounds * replicas):
        g = torch.Generator().manual_seed(call)
        x, y = torch.randn(8, 3, generator=g).to(dtype), torch.randint(2, (8,), generator=g)
        sampler.zero_grad()
        nn.functional.cross_entropy(net(x).float(), y).backward()
        sampler.step()
        if not sampler.current_replica:
            posterior.collect(sampler)
    return net, sampler, posterior


def manifest(path):
    return json.loads((path / "samples" / "manifest.json").read_text())


def test_every_round_gives_its_replicas_and_one_guide(tmp_path):
    net, sampler, posterior = sampled(tmp_path)
    collected = [(s.step, s.role, s.replica) for s in posterior.samples]
    of_round = [("theta", 0), ("theta", 1), ("theta", 2), ("guide", None)]
    assert collected == [(step, *which) for step in (1, 2, 3) for which in of_round]
    assert (tmp_path / "samples" / "0000000002-theta-r1.safetensors").exists()
    assert posterior.collect(sampler) == 0, "a step is stored once"
    last = [i for i, s in enumerate(posterior.samples) if s.step == 3]
    for index, block in zip(last, [*map(sampler.replica, range(3)), sampler.guide()], strict=True):
        with block:
            for name, value in posterior[index].items():
                assert torch.equal(value, net.state_dict()[name])
    assert len(posterior.verify() and posterior.samples) == 12


def test_predictions_average_over_all_replicas(tmp_path):
    _, _, posterior = sampled(tmp_path)
    each = posterior.sample_predictions(INPUTS)
    assert each.shape[0] == 12
    torch.testing.assert_close(posterior.predict_proba(INPUTS), each.mean(0))
    theta = [i for i, s in enumerate(posterior.samples) if s.role == "theta"]
    torch.testing.assert_close(posterior.predict_proba(INPUTS, roles="theta"), each[theta].mean(0))
    chosen = posterior.subset(lambda sample: sample.replica == 1)
    assert [s.step for s in chosen.samples] == [1, 2, 3]
    torch.testing.assert_close(chosen.predict_proba(INPUTS), each[[1, 5, 9]].mean(0))


def test_roles_thinning_and_size(tmp_path):
    _, sampler, guides = sampled(tmp_path / "a", roles="guide")
    assert {(s.role, s.replica) for s in guides.samples} == {("guide", None)}
    _, _, thinned = sampled(tmp_path / "b", roles="theta", thin=2)
    assert [(s.step, s.replica) for s in thinned.samples] == [
        (step, i) for step in (1, 3) for i in range(3)
    ]
    assert guides.expected_size(5, sampler).samples == 5
    _, sampler, both = sampled(tmp_path / "c")
    assert both.expected_size(5, sampler).samples == 20
    expected = both.expected_size(3, sampler).sample
    assert both.samples[0].file.bytes == pytest.approx(expected, rel=0.2)


def test_batch_norm_is_refreshed_for_every_replica(tmp_path):
    _, _, posterior = sampled(tmp_path, norm=True)
    assert posterior.refresh_batchnorm([INPUTS]) == 12
    names = {s.file.name for s in posterior.samples}
    assert "0000000001-theta-r2-bn1.safetensors" in names
    means = {tuple(state["1.running_mean"].tolist()) for state in posterior}
    assert len(means) == 12


def test_bfloat16_networks_keep_their_float32_values(tmp_path):
    net, sampler, posterior = sampled(tmp_path, rounds=1, dtype=torch.bfloat16)
    assert {s.dtype for s in posterior.samples} == {"float32"}
    tensors = posterior._store.open(posterior.samples[1])[1]
    kept = sampler.state[net[0].weight]["theta_1"]
    assert torch.equal(tensors["0.weight"].read(), kept)
    assert not torch.equal(kept, kept.bfloat16().float())


def test_a_merged_store_keeps_replicas(tmp_path):
    net, _, first = sampled(tmp_path / "a", rounds=1)
    _, _, second = sampled(tmp_path / "b", rounds=1)
    merged = Posterior.merge(tmp_path / "c", [first, second])
    assert [(s.chain, s.replica) for s in merged.samples if s.role == "theta"] == [
        (chain, i) for chain in (0, 1) for i in range(3)
    ]
    assert len(Posterior.open(tmp_path / "c", net)) == 8


def test_a_store_without_replicas_is_one_that_earlier_versions_read(tmp_path):
    net = network()
    sampler = SGLD(net.parameters(), lr=0.1, num_data=20)
    posterior = Posterior.create(tmp_path, net)
    posterior.collect(sampler)
    content = manifest(tmp_path)
    assert content["schema"] == 2
    assert "replica" not in content["samples"][0]
    assert posterior.samples[0].replica is None


@pytest.mark.parametrize("value", [-1, "0", 1.5, True, 7])
def test_a_replica_that_is_no_number_or_not_that_of_the_file_is_refused(value, tmp_path):
    net, _, _ = sampled(tmp_path, rounds=1)
    content = manifest(tmp_path)
    assert content["schema"] == 3
    content["samples"][1]["replica"] = value
    content["checksum"] = checksum(content)
    (tmp_path / "samples" / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DamagedFileError):
        Posterior.open(tmp_path, net)

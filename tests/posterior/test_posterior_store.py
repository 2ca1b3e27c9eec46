"""The store on disk: what it keeps, what it refuses, who may share it."""

import os
import signal
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from entropy_mcmc.errors import (
    ConfigError,
    DamagedFileError,
    MissingFileError,
    StateError,
)
from entropy_mcmc.posterior import Posterior


class ToySampler(torch.optim.SGD):
    """An optimizer with a step count and a guide, as the samplers have."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.param_groups[0]["step"] = 0

    def advance(self):
        self.param_groups[0]["step"] += 1
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.add_(1.0)

    @contextmanager
    def guide(self):
        params = self.param_groups[0]["params"]
        kept = [p.detach().clone() for p in params]
        with torch.no_grad():
            for p in params:
                p.add_(100.0)
        yield
        with torch.no_grad():
            for p, k in zip(params, kept, strict=True):
                p.copy_(k)


def filled(path, steps=3, **options):
    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    sampler = ToySampler(model.parameters())
    posterior = Posterior.create(path, model, **options)
    for _ in range(steps):
        sampler.advance()
        posterior.collect(sampler, cycle=1)
    return posterior, model, sampler


def manifest_path(path):
    return path / "samples" / "manifest.json"


def test_collects_theta_and_guide_with_their_own_values(tmp_path):
    posterior, model, _ = filled(tmp_path / "a", steps=2)
    assert posterior.roles == ("theta", "guide", "theta", "guide")
    assert [s.step for s in posterior.samples] == [1, 1, 2, 2]
    assert {s.cycle for s in posterior.samples} == {1}
    torch.testing.assert_close(posterior[2]["weight"], model.weight.detach())
    torch.testing.assert_close(posterior[3]["weight"], model.weight.detach() + 100)
    torch.testing.assert_close(posterior[0]["bias"], model.bias.detach() - 1)
    assert posterior.verify() == 4


def test_a_state_dict_loads_into_a_fresh_model(tmp_path):
    posterior, model, _ = filled(tmp_path / "a")
    fresh = nn.Linear(2, 3)
    fresh.load_state_dict(posterior[-2])
    torch.testing.assert_close(fresh.weight, model.weight)
    other = posterior.load(-1, nn.Linear(2, 3))
    torch.testing.assert_close(other.weight, model.weight + 100)
    assert len(list(posterior)) == 6


def test_collect_is_idempotent_per_step_and_role(tmp_path):
    posterior, _, sampler = filled(tmp_path / "a")
    before = posterior.samples
    assert posterior.collect(sampler) == 0
    assert posterior.collect(step=2) == 0
    assert posterior.samples == before
    assert posterior.collect(step=9) == 1  # no optimizer: θ only
    assert posterior.collect(sampler, step=9) == 1  # the guide was missing
    assert posterior.collect() == 1
    assert posterior.samples[-1].step == 10


@pytest.mark.parametrize("role", ["theta", "guide"])
def test_only_the_roles_asked_for_are_kept(tmp_path, role):
    posterior, _, _ = filled(tmp_path / "a", roles=role)
    assert posterior.roles == (role,) * 3
    assert len(list((tmp_path / "a" / "samples").glob("*.safetensors"))) == 3


def test_an_optimizer_without_guide_gives_theta(tmp_path):
    model = nn.Linear(2, 3)
    posterior = Posterior.create(tmp_path / "a", model)
    optimizer = torch.optim.Adam(model.parameters())
    assert [posterior.collect(optimizer) for _ in range(2)] == [1, 1]
    assert posterior.roles == ("theta", "theta")


def test_thinning_continues_after_reopening_and_replay(tmp_path):
    model = nn.Linear(2, 3)
    posterior = Posterior.create(tmp_path / "a", model, thin=3)
    for step in range(5):
        posterior.collect(step=step)
    posterior.close()
    posterior = Posterior.open(tmp_path / "a", model, append=True)
    for step in range(2, 10):  # 2, 3, 4 are replayed by a resumed chain
        posterior.collect(step=step)
    assert [s.step for s in posterior.samples] == [0, 3, 6, 9]


def test_keep_last_keeps_the_newest_and_does_not_resurrect(tmp_path):
    posterior, _, _ = filled(tmp_path / "a", steps=5, keep_last=4)
    assert [s.step for s in posterior.samples] == [4, 4, 5, 5]
    assert len(list((tmp_path / "a" / "samples").glob("*.safetensors"))) == 4
    assert posterior.collect(step=1) == 0


def test_bfloat16_halves_the_file_and_rounds_parameters_only(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300))
    model[1].running_mean.normal_()
    posterior = Posterior.create(tmp_path / "a", model, dtype="bfloat16")
    posterior.collect()
    state = posterior[0]
    assert posterior.samples[0].dtype == "bfloat16"
    assert torch.equal(state["0.weight"], model[0].weight.detach().bfloat16())
    assert torch.equal(state["1.running_mean"], model[1].running_mean)
    assert posterior.samples[0].file.bytes < 0.55 * 300 * 300 * 4


def test_the_float32_master_and_guide_of_a_bfloat16_model_are_stored(tmp_path):
    model = nn.Linear(2, 3).bfloat16()
    sampler = ToySampler(model.parameters())
    master = {p: torch.rand(p.shape) for p in model.parameters()}
    for p, value in master.items():
        sampler.state[p] = {"master": value, "guide": value + 5}
    posterior = Posterior.create(tmp_path / "a", model)
    posterior.collect(sampler)
    assert torch.equal(posterior[0]["weight"], master[model.weight])
    assert torch.equal(posterior[1]["weight"], master[model.weight] + 5)
    posterior.load(0)
    assert torch.equal(model.weight, master[model.weight].bfloat16())


def test_a_frozen_backbone_is_stored_once(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 200), nn.Linear(200, 3))
    sampler = ToySampler(model[1].parameters())
    posterior = Posterior.create(tmp_path / "a", model)
    for _ in range(4):
        sampler.advance()
        posterior.collect(sampler)
    folder = tmp_path / "a" / "samples"
    assert len(list(folder.glob("shared-*"))) == 1
    assert max(s.file.bytes for s in posterior.samples) < 5000
    assert torch.equal(posterior[5]["0.weight"], model[0].weight)
    old = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.add_(1)  # the backbone changed after all: its new values are kept too
    sampler.advance()
    posterior.collect(sampler)
    assert len(list(folder.glob("shared-*"))) == 2
    assert torch.equal(posterior[8]["0.weight"], model[0].weight)
    assert torch.equal(posterior[0]["0.weight"], old)


def test_tied_parameters_are_stored_once(tmp_path):
    model = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 50))
    model[1].weight = model[0].weight
    posterior = Posterior.create(tmp_path / "a", model)
    posterior.collect()
    assert posterior.samples[0].file.bytes < 1.2 * 50 * 50 * 4
    state = posterior[0]
    assert state.keys() == model.state_dict().keys()
    model.load_state_dict(state)


class Wrapped(nn.Module):
    def __init__(self, inner, name):
        super().__init__()
        self.add_module(name, inner)


@pytest.mark.parametrize("name", ["module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module"])
def test_wrapper_prefixes_are_stripped(tmp_path, name):
    model = nn.Linear(2, 3)
    Posterior.create(tmp_path / "a", Wrapped(model, name)).collect()
    assert set(Posterior.open(tmp_path / "a", model)[0]) == {"weight", "bias"}


def test_an_existing_store_is_not_overwritten_and_a_missing_one_is_named(tmp_path):
    _, model, _ = filled(tmp_path / "a")
    with pytest.raises(StateError, match="append=True"):
        Posterior.create(tmp_path / "a", model)
    with pytest.raises(MissingFileError, match=r"Posterior\.create"):
        Posterior.open(tmp_path / "b", model)


def test_a_run_folder_with_other_files_is_accepted(tmp_path):
    (tmp_path / "config.yaml").write_text("a: 1\n")
    Posterior.create(tmp_path, nn.Linear(1, 2)).collect()
    assert manifest_path(tmp_path).exists()


def test_bad_options_are_refused(tmp_path):
    for option in ({"likelihood": "x"}, {"roles": "x"}, {"dtype": "float16"}, {"thin": 0}):
        with pytest.raises(ConfigError, match=next(iter(option))):
            Posterior.create(tmp_path / "a", nn.Linear(1, 2), **option)
    assert not (tmp_path / "a").exists()


def test_one_writer_any_readers(tmp_path):
    writer, model, sampler = filled(tmp_path / "a")
    with pytest.raises(StateError, match="has a writer already"):
        Posterior.open(tmp_path / "a", model, append=True)
    readers = [Posterior.open(tmp_path / "a", nn.Linear(2, 3)) for _ in range(2)]
    with pytest.raises(StateError, match="append=True"):
        readers[0].collect()
    sampler.advance()
    writer.collect(sampler)
    assert [len(reader) for reader in readers] == [8, 8]
    writer.close()
    with Posterior.open(tmp_path / "a", model, append=True) as second:
        assert second.collect(step=77) == 1
    assert len(readers[0]) == 9


def test_a_reader_survives_eviction_in_the_middle_of_a_pass(tmp_path):
    writer, _, sampler = filled(tmp_path / "a", steps=2, keep_last=4)
    reader = Posterior.open(tmp_path / "a", nn.Linear(2, 3))
    states = iter(reader)
    next(states)
    sampler.advance()
    writer.collect(sampler)  # drops both samples of step 1
    assert len(list(states)) == 2


@pytest.mark.parametrize("use", [list, lambda reader: reader.predict_proba(torch.ones(1, 2))])
def test_a_reader_survives_a_sample_dropped_between_check_and_open(tmp_path, monkeypatch, use):
    writer, _, sampler = filled(tmp_path / "a", steps=2, keep_last=4)
    reader = Posterior.open(tmp_path / "a", nn.Linear(2, 3))
    check, checked = reader._store.check, []

    def and_drop(sample, **options):
        check(sample, **options)
        if not checked:
            sampler.advance()
            writer.collect(sampler)  # drops both samples of step 1
        checked.append(sample.step)

    monkeypatch.setattr(reader._store, "check", and_drop)
    use(reader)
    assert checked[:3] == [1, 2, 2]


def test_the_lock_does_not_outlive_a_killed_writer_with_forked_children(tmp_path):
    model = nn.Linear(2, 3)
    ready, hold = os.pipe(), os.pipe()
    writer = os.fork()
    if writer == 0:
        Posterior.create(tmp_path / "a", model)
        if os.fork() == 0:  # like a data-loader worker, it outlives its parent
            os.write(ready[1], b"x")
            os.read(hold[0], 1)
            os._exit(0)
        signal.pause()
    os.read(ready[0], 1)
    os.kill(writer, 9)
    os.waitpid(writer, 0)
    try:
        assert Posterior.open(tmp_path / "a", model, append=True).collect() == 1
    finally:
        os.write(hold[1], b"xx")


def test_leftovers_of_a_kill_are_ignored_and_cleaned_by_the_next_writer(tmp_path):
    posterior, model, _ = filled(tmp_path / "a")
    posterior.close()
    folder = tmp_path / "a" / "samples"
    orphan, partial = folder / "0000000099-theta.safetensors", folder / ".tmp-1-x"
    foreign = folder / "notes.txt"
    for path in (orphan, partial, foreign):
        path.write_bytes(b"half")
    assert Posterior.open(tmp_path / "a", model).verify() == 6
    assert orphan.exists()
    Posterior.open(tmp_path / "a", model, append=True)
    assert not orphan.exists()
    assert not partial.exists()
    assert foreign.exists()


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped": _flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_named_and_can_be_skipped(tmp_path, kind):
    posterior, model, _ = filled(tmp_path / "a")
    x = torch.ones(4, 2)
    keep = [0, 1, 3, 4, 5]
    expected = posterior.sample_predictions(x)[keep].mean(0)
    victim = tmp_path / "a" / "samples" / posterior.samples[2].file.name
    DAMAGE[kind](victim)
    for reader in (posterior, Posterior.open(tmp_path / "a", model)):
        with pytest.raises(DamagedFileError, match=victim.name):
            reader.predict_proba(x)
        with pytest.raises(DamagedFileError, match="skip_damaged=True"):
            reader.verify()
    skipping = Posterior.open(tmp_path / "a", model, skip_damaged=True)
    with pytest.warns(RuntimeWarning, match=f"left out 1 of 6.*{victim.name}") as caught:
        torch.testing.assert_close(skipping.predict_proba(x), expected)
    assert len(caught) == 1
    with pytest.warns(RuntimeWarning, match="left out 1"):
        assert skipping.verify() == 5


def test_all_damaged_raises_even_when_skipping(tmp_path):
    _, model, _ = filled(tmp_path / "a", steps=1)
    for path in (tmp_path / "a" / "samples").glob("*.safetensors"):
        _flip(path)
    skipping = Posterior.open(tmp_path / "a", model, skip_damaged=True)
    with pytest.raises(DamagedFileError, match="SHA-256"):
        skipping.predict(torch.ones(1, 2))


def test_another_architecture_is_refused_by_name_and_shape(tmp_path):
    filled(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"bias is \(3,\) in the file and \(4,\)"):
        Posterior.open(tmp_path / "a", nn.Linear(2, 4)).predict_proba(torch.ones(1, 2))
    with pytest.raises(ConfigError, match="missing"):
        Posterior.open(tmp_path / "a", nn.Sequential(nn.Linear(2, 3))).load(0)

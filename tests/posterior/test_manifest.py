"""The manifest: what it refuses, what older ones mean, and the digest that checkpoints keep."""

import json
import os

import pytest
import torch
from torch import nn

from entropy_mcmc.errors import DamagedFileError, StateError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.posterior.manifest import STRIDE, checksum
from entropy_mcmc.posterior.manifest_reader import read_manifest


def filled(path, steps=3, chains=(0,), refresh=False):
    """A store with one sample for each step of each chain."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) if refresh else nn.Linear(2, 3)
    posterior = Posterior.create(path, model)
    for chain in chains:
        for step in range(1, steps + 1):
            posterior.collect(step=chain * STRIDE + step, cycle=1, chain=chain)
    return posterior, model


def manifest_path(path):
    return path / "samples" / "manifest.json"


def _edit(change, *, seal=True):
    """Change the parsed manifest; with `seal`, whoever did it wrote a new checksum too."""

    def apply(path):
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps({**data, "checksum": checksum(data)} if seal else data))

    return apply


def _set(*keys, value, seal=True):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return _edit(change, seal=seal)


def _list_file_twice(data):
    data["samples"][1]["file"] = data["samples"][0]["file"]


NAMED = ("samples", 0, "file", "name")
HOSTILE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "too large": lambda path: path.write_bytes(b" " * 16_000_001),
    "a list": lambda path: path.write_text("[]"),
    "deep": lambda path: path.write_text("[" * 200_000),
    "huge number": lambda path: path.write_text('{"schema": ' + "9" * 9999 + "}"),
    "parent": _set(*NAMED, value="../../etc/passwd"),
    "absolute": _set(*NAMED, value="/etc/passwd"),
    "newline": _set(*NAMED, value="0000000001-theta.safetensors\n"),
    "shared path": _set("samples", 0, "shared", value={"name": "../x", "bytes": 1, "sha256": ""}),
    "digest": _set("samples", 0, "file", "sha256", value="zz"),
    "size": _set("samples", 0, "file", "bytes", value=-1),
    "bool": _set("samples", 0, "step", value=True),
    "float": _set("samples", 0, "step", value=1.5),
    "chain": _set("samples", 0, "chain", value="0"),
    "role": _set("samples", 0, "role", value="phi"),
    "unhashable role": _set("samples", 0, "role", value=["theta"]),
    "twice": _edit(lambda data: data["samples"].append(data["samples"][0])),
    "missing": _edit(lambda data: data.pop("samples")),
    "thin": _set("thin", value=0),
    "no checksum": _edit(lambda data: data.pop("checksum"), seal=False),
    "flipped cycle": _set("samples", 0, "cycle", value=0, seal=False),
    "flipped step": _set("samples", 0, "step", value=9),
    "a file under two steps": _edit(_list_file_twice),
    "another file's name": _set(*NAMED, value="0000000009-theta.safetensors"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path, kind):
    posterior, model = filled(tmp_path / "a")
    posterior.close()
    HOSTILE[kind](manifest_path(tmp_path / "a"))
    for append in (False, True):
        with pytest.raises(DamagedFileError, match=r"manifest\.json"):
            Posterior.open(tmp_path / "a", model, append=append)
    assert len(list((tmp_path / "a" / "samples").glob("*.safetensors"))) == 3


def test_a_flipped_bit_is_noticed_or_harmless(tmp_path):
    filled(tmp_path / "a", steps=1)[0].close()
    path = manifest_path(tmp_path / "a")
    expected, content = read_manifest(path), path.read_bytes()
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 7
        path.write_bytes(damaged)
        try:
            assert read_manifest(path) == expected  # white space
        except (DamagedFileError, StateError):
            continue


def test_a_newer_schema_is_said(tmp_path):
    _, model = filled(tmp_path / "a")
    _set("schema", value=99)(manifest_path(tmp_path / "a"))
    with pytest.raises(StateError, match="schema 99"):
        Posterior.open(tmp_path / "a", model)


def _to_schema_1(data):
    data["schema"] = 1
    del data["checksum"]
    for sample in data["samples"]:
        del sample["chain"]


def test_an_older_manifest_opens_unverified_and_is_sealed_by_the_next_writer(tmp_path):
    posterior, model = filled(tmp_path / "a")
    assert posterior.verified
    posterior.close()
    _edit(_to_schema_1, seal=False)(manifest_path(tmp_path / "a"))
    reader = Posterior.open(tmp_path / "a", model)
    assert not reader.verified
    assert "unverified" in repr(reader)
    assert [s.chain for s in reader.samples] == [None] * 3
    assert reader.predict(torch.ones(1, 2)).shape == (1,)
    with Posterior.open(tmp_path / "a", model, append=True) as writer:
        writer.collect(step=9)
        assert writer.verified
    assert reader.verified
    assert "unverified" not in repr(reader)


def test_an_older_manifest_of_several_chains_tells_them_apart(tmp_path):
    posterior, model = filled(tmp_path / "a", steps=2, chains=(0, 3))
    expected = [0, 0, 3, 3]
    assert [s.chain for s in posterior.samples] == expected
    posterior.close()
    _edit(_to_schema_1, seal=False)(manifest_path(tmp_path / "a"))
    assert [s.chain for s in Posterior.open(tmp_path / "a", model).samples] == expected


def test_the_digest_of_the_first_samples_stays_while_more_come(tmp_path):
    posterior, _ = filled(tmp_path / "a", chains=(0, 1), refresh=True)
    before = posterior._store.manifest
    kept = [before.digest(count, chain) for chain in (0, 1) for count in range(4)]
    assert len(set(kept)) == 7  # the empty one is the same for both
    posterior.collect(step=7, chain=0)
    posterior.refresh_batchnorm([torch.randn(4, 2)])
    after = posterior._store.manifest
    assert [after.digest(count, chain) for chain in (0, 1) for count in range(4)] == kept
    assert after.digest(6) != before.digest(6)
    for count, chain in ((-1, None), (8, None), (4, 1)):
        with pytest.raises(StateError, match=f"got {count}"):
            after.digest(count, chain)


def test_the_digest_sees_what_was_collected(tmp_path):
    digests = set()
    for number, change in enumerate(({}, {"step": 5}, {"cycle": 2}, {"chain": 1})):
        posterior = Posterior.create(tmp_path / str(number), nn.Linear(2, 3))
        posterior.collect(**{"step": 1, "cycle": 1, "chain": 0, **change})
        digests.add(posterior._store.manifest.digest(1))
    assert len(digests) == 4


def test_a_fifo_or_a_device_is_refused_without_waiting(tmp_path):
    posterior, model = filled(tmp_path / "a")
    posterior.close()
    path = manifest_path(tmp_path / "a")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedFileError, match="regular"):
        Posterior.open(tmp_path / "a", model)
    with pytest.raises(DamagedFileError, match="regular"):
        read_manifest(type(path)("/dev/zero"))
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_manifest(tmp_path)


def test_a_fifo_in_place_of_a_sample_is_refused_without_waiting(tmp_path):
    posterior, model = filled(tmp_path / "a")
    posterior.close()
    _set("samples", 0, "file", "bytes", value=0)(manifest_path(tmp_path / "a"))
    victim = tmp_path / "a" / "samples" / posterior.samples[0].file.name
    victim.unlink()
    os.mkfifo(victim)
    with pytest.raises(DamagedFileError, match="regular"):
        Posterior.open(tmp_path / "a", model).predict(torch.ones(1, 2))


@pytest.mark.parametrize("what", ["manifest", "sample", "lock", "folder"])
def test_links_out_of_the_folder_are_refused(tmp_path, what):
    posterior, model = filled(tmp_path / "a")
    posterior.close()
    samples = tmp_path / "a" / "samples"
    name = {"manifest": "manifest.json", "lock": ".lock", "folder": "."}
    victim = samples / name.get(what, posterior.samples[0].file.name)
    outside = tmp_path / "outside"
    victim.resolve().rename(outside)
    (samples if what == "folder" else victim).symlink_to(outside)
    with pytest.raises(DamagedFileError, match="symbolic link"):
        Posterior.open(tmp_path / "a", model, append=True).predict(torch.ones(1, 2))


def test_a_link_to_the_whole_run_folder_is_fine(tmp_path):
    filled(tmp_path / "a")[0].close()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert len(Posterior.open(tmp_path / "b", nn.Linear(2, 3), append=True)) == 3


def test_what_a_kill_inside_safetensors_leaves_is_removed_by_the_next_writer(tmp_path):
    posterior, model = filled(tmp_path / "a")
    posterior.close()
    folder = tmp_path / "a" / "samples"
    left, foreign = folder / ".tmpaB3xZ9", folder / ".tmpnotes"
    for path in (left, foreign):
        path.write_bytes(b"half")
    Posterior.open(tmp_path / "a", model)
    assert left.exists()
    Posterior.open(tmp_path / "a", model, append=True)
    assert not left.exists()
    assert foreign.exists()

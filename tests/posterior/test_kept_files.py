"""Small files are read once, as long as they stay what they were, and within a stated memory."""

import pytest
import torch
from torch import nn

from entropy_mcmc.errors import DamagedFileError
from entropy_mcmc.posterior import Posterior, kept_files, store
from entropy_mcmc.posterior.kept_files import KeptFiles
from entropy_mcmc.posterior.manifest import StoredFile


@pytest.fixture
def posterior(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    made = Posterior.create(tmp_path / "run", net)
    for step in range(3):
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(0.9)
        made.collect(step=step)
    made.close()
    return Posterior.open(tmp_path / "run", net)


@pytest.fixture
def opened(monkeypatch):
    """Names of files that were opened since."""
    names = []
    original = store._open_tensors
    monkeypatch.setattr(store, "_open_tensors", lambda p: names.append(p.name) or original(p))
    return names


def test_a_second_prediction_opens_no_file(posterior, opened):
    x = torch.randn(5, 3)
    first = posterior.predict_proba(x, vectorize=False)
    assert len(opened) == 3
    assert torch.equal(posterior.predict_proba(x, vectorize=False), first)
    assert len(opened) == 3


def test_large_files_are_not_kept(posterior, opened, monkeypatch):
    monkeypatch.setattr(kept_files, "LARGEST", 10)
    x = torch.randn(5, 3)
    first = posterior.predict_proba(x, vectorize=False)
    assert torch.equal(posterior.predict_proba(x, vectorize=False), first)
    assert len(opened) == 6


def test_a_file_that_changes_is_seen(posterior):
    x = torch.randn(5, 3)
    posterior.predict_proba(x)
    path = posterior.path / "samples" / posterior.samples[1].file.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamagedFileError, match=path.name):
        posterior.predict_proba(x)


def test_what_a_user_does_with_a_state_stays_his(posterior):
    before = posterior[0]["0.weight"].clone()
    posterior[0]["0.weight"].zero_()
    assert torch.equal(posterior[0]["0.weight"], before)


def test_the_oldest_go_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(kept_files, "MOST", 250)
    files, reads = KeptFiles(), []

    def get(name):
        return files.get((StoredFile(name, 100, "0" * 64), ()), lambda: reads.append(name) or {})

    for name in ("a", "b", "c", "c", "b", "a"):
        get(name)
    assert reads == ["a", "b", "c", "a"]

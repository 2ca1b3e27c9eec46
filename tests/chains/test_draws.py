"""Draws of chains as arviz reads them."""

import sys

import pytest
import torch

from entropy_mcmc import chains
from entropy_mcmc.errors import ConfigError


def test_to_arviz_is_read_by_arviz_stats():
    """Independent normals: R-hat within 1 ± .02 and about as many effective draws as draws."""
    arviz_stats = pytest.importorskip("arviz_stats")
    pytest.importorskip("arviz_base")
    generator = torch.Generator().manual_seed(2)
    theta, guide = torch.randn(2, 4, 1000, 2, generator=generator)
    tree = chains.Chains({"0.w": theta}, {"0.w": guide}).to_arviz()
    assert tree["posterior"]["0.w"].dims[:2] == ("chain", "draw")
    assert torch.equal(torch.from_numpy(tree["posterior"]["guide_0.w"].to_numpy()), guide)
    assert abs(arviz_stats.rhat(tree)["0.w"].to_numpy() - 1).max() < 0.02
    assert arviz_stats.ess(tree)["guide_0.w"].to_numpy().min() > 3000


def test_to_arviz_of_a_bare_tensor_without_a_guide():
    pytest.importorskip("arviz_base")
    posterior = chains.Chains(torch.zeros(3, 5, 2), None).to_arviz()["posterior"]
    assert list(posterior.data_vars) == ["theta"]
    assert posterior["theta"].shape == (3, 5, 2)


def test_to_arviz_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ConfigError, match="entropy-mcmc\\[arviz\\]"):
        chains.Chains(torch.zeros(3, 5, 2), None).to_arviz()


@pytest.mark.parametrize("name", ["chain", "draw"])
def test_to_arviz_refuses_names_of_its_dimensions(name):
    """Draws of such a parameter were left out of the tree."""
    pytest.importorskip("arviz_base")
    with pytest.raises(ConfigError, match=f"the name '{name}'; give it another"):
        chains.Chains({name: torch.zeros(3, 5)}, None).to_arviz()

"""Chains by what the first one shows: the rule, its cost, the chain that goes on, and the page."""

import numpy as np
import pytest
import torch

from tournament import auto, command, leagues, page_auto, trajectory
from tournament.methods import METHODS
from tournament.settings import Settings, as_dict
from tournament.store import Store
from tournament.work import work


@pytest.fixture(autouse=True)
def forget():
    trajectory._ended.cache_clear()
    yield
    trajectory._ended.cache_clear()


def test_settings_of_older_stores_keep_their_keys():
    settings = Settings("digits", 0, "sgd", 48, 0.1, prior_variance=0.1)
    assert settings.key == "42734146681fd980"
    assert "after" not in as_dict(settings)
    later = Settings("digits", 0, "sgd", 36, 0.1, after=settings)
    assert as_dict(later)["after"] == as_dict(settings)
    assert later.key != Settings("digits", 0, "sgd", 36, 0.1).key


def test_a_chain_that_goes_on_starts_where_the_first_ended(tiny):
    first = Settings("tiny", 0, "sgd", 2, 0.1, prior_variance=1.0)
    still = Settings("tiny", 0, "sgd", 6, 1e-12, chain=1, after=first)
    ended, went_on = trajectory.run(first), trajectory.run(still)
    np.testing.assert_allclose(went_on.outputs["last"], ended.outputs["last"], atol=1e-6)
    alone = trajectory.run(Settings("tiny", 0, "sgd", 6, 1e-12, chain=1))
    assert went_on.cost == ended.cost + alone.cost


def test_the_loss_that_decides_is_that_of_the_last_network(tiny, tmp_path):
    store, settings = Store(tmp_path), Settings("tiny", 0, "sgd", 2, 0.1, prior_variance=1.0)
    store.make(settings)
    held = trajectory.data_of("tiny", 0).validation
    model = tiny["tiny"].network()
    model.load_state_dict(trajectory._ended(settings)[0])
    expected = torch.nn.functional.cross_entropy(model(held.x), held.y)
    found = auto.held_out_loss(store.read(settings), regression=False)
    assert found == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("ratio", [0.0, 1e9])
def test_both_ways_cost_the_budget(tiny, tmp_path, monkeypatch, ratio):
    monkeypatch.setattr(auto, "RATIO", ratio)
    task, store = tiny["tiny"], Store(tmp_path / "store")
    work(lambda: auto.missing([task], store), store)
    found = auto.plan(task, 0, store)
    assert found.method.chains == (4 if ratio == 0 else 1)
    record = auto.record(0, found, store)
    budget = task.passes * len(task.rows(0).train.x)
    assert budget - 4 * task.batch < record["cost"] <= budget
    assert record["measures"]["nll"] > 0


def test_a_trained_network_has_one_chain(tiny, tmp_path):
    found = auto.plan(tiny["tiny-start"], 0, Store(tmp_path))
    assert found.method.name == "EMCMC"
    assert len(found.runs) == 1


def test_confirmation_tasks_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="development"):
        command.main("text", ["auto", "--tasks", "wine-red", "--store", str(tmp_path)])


def test_the_page(tiny, tmp_path, monkeypatch):
    names = ("EMCMC", "EMCMC ×4", "SGD")
    monkeypatch.setattr(leagues, "methods_of", lambda task: [METHODS[name] for name in names])
    monkeypatch.setattr(page_auto, "TASKS", tiny)
    task, store = tiny["tiny"], Store(tmp_path / "store")
    assert page_auto.section(tmp_path, names) == ""
    work(lambda: leagues.missing("own", [task], store), store)
    leagues.score("own", task, store, tmp_path)
    work(lambda: auto.missing([task], store), store)
    auto.write(task, store, tmp_path)
    text = page_auto.section(tmp_path, names)
    assert "| tiny | 2 |" in text
    assert "among 4 on 1 tasks" in text

"""A stopped tournament goes on, and gives the same table."""

import json

import numpy as np
import pytest

from tournament import command, extra, leagues, page, plan, readme, table, trials
from tournament.methods import METHODS, thinned, trajectories
from tournament.settings import Settings
from tournament.store import Store, claimed
from tournament.tasks import TASKS
from tournament.work import work

FEW = ("SGD", "iterates", "SGHMC", "EMCMC", "ensemble 2")


@pytest.fixture
def few(monkeypatch):
    chosen = [METHODS[name] for name in FEW]
    monkeypatch.setattr(leagues, "methods_of", lambda task: chosen)
    monkeypatch.setattr(plan, "methods_of", lambda task: chosen)


def scores(league, tasks, store, folder):
    for task in tasks:
        leagues.score(league, task, store, folder)
    return {
        file.relative_to(folder): {
            name: value for name, value in json.loads(file.read_text()).items() if name != "seconds"
        }
        for file in sorted(folder.rglob("*.json"))
    }


def test_killed_and_continued_gives_the_same_table(tiny, few, tmp_path):
    tasks = [tiny["tiny"], tiny["tiny-bn"]]
    whole, parts = Store(tmp_path / "whole"), Store(tmp_path / "parts")
    work(lambda: leagues.missing("own", tasks, whole), whole)
    wanted = leagues.missing("own", tasks, parts)
    for settings in wanted[: len(wanted) // 2]:
        parts.make(settings)
    # As after a kill: outputs without a record, and a half-written file.
    torn = wanted[-1]
    (parts.folder / f"{torn.key}.npz").write_bytes(b"torn")
    (parts.folder / f"{torn.key}.part").write_text("{")
    work(lambda: leagues.missing("own", tasks, parts), parts)
    first = scores("own", tasks, whole, tmp_path / "a")
    assert first == scores("own", tasks, parts, tmp_path / "b")
    assert len(first) == len(FEW) * 2 * 2


def test_a_run_is_made_once(tiny, tmp_path):
    store = Store(tmp_path)
    settings = Settings("tiny", 0, "sgd", 1, 0.1)
    assert store.missing([settings, settings]) == [settings]
    assert store.make(settings)
    assert not store.make(settings)
    other = Settings("tiny", 1, "sgd", 1, 0.1)
    with claimed(tmp_path, other.key) as mine:
        assert mine
        assert not store.make(other)


def test_what_another_process_makes_is_waited_for_last(tiny, tmp_path, monkeypatch):
    store = Store(tmp_path)
    taken, free = (Settings("tiny", seed, "sgd", 1, 0.1) for seed in (0, 1))
    had = []

    def pause(_):
        had.append((store.has(taken), store.has(free)))
        other.__exit__(None, None, None)  # the other process ends without a result

    monkeypatch.setattr("tournament.store.time.sleep", pause)
    other = claimed(tmp_path, taken.key)
    assert other.__enter__()
    store.make_all([taken, free])
    assert had == [(False, True)]
    assert store.has(taken)


def test_a_diverged_run_is_stored_and_scored(tiny, few, tmp_path):
    store = Store(tmp_path)
    settings = Settings("tiny", 0, "sgd", 8, 1e12, prior_variance=1e-6)
    store.make(settings)
    found = leagues.scored(METHODS["SGD"], [settings], store)
    assert found["diverged"]
    assert found["measures"] == {}


def test_trials_choose_the_least_validation_nll(tiny, tmp_path):
    store, task, method = Store(tmp_path), tiny["tiny"], METHODS["SGD"]
    base = {"lr": 0.05, "prior_variance": 0.2}
    counts = []
    while (result := trials.chosen(method, task, base, store))[0] is None:
        counts.append(len(result[1]))
        for settings in result[1]:
            store.make(settings)
    assert counts == [trials.TRIALS, trials.FINALISTS]
    finalists = [
        knobs
        for knobs in trials.candidates(method, base)
        if not store.missing(trajectories(method, task, trials.SEED, knobs))
    ]
    values = [
        trials.validation_nll(method, trajectories(method, task, trials.SEED, knobs), store)
        for knobs in finalists
    ]
    assert len(finalists) == trials.FINALISTS
    assert result[0] == finalists[int(np.argmin(values))]


def test_candidates_begin_with_the_recipe_and_stay_in_range():
    base = {"lr": 0.1, "prior_variance": 0.2, "temperature": 0.02, "horizon": 0.2}
    found = trials.candidates(METHODS["EMCMC"], base)
    assert len(found) == trials.TRIALS
    assert found[0] == base
    assert all(0.01 <= knobs["lr"] <= 0.3 for knobs in found)


def test_finalists_are_run_to_every_stopping_point_and_a_chosen_one_stays_there(tiny, tmp_path):
    store, task, method = Store(tmp_path), tiny["tiny"], METHODS["SGD"]
    base, search = {"lr": 0.05, "prior_variance": 0.2}, trials.Search(4, 2, lengths=(1.0, 0.5))
    found = trials.candidates(method, base, search)
    assert found == trials.candidates(method, base)[:4]  # the league's settings, all at full length
    asked = []
    while (result := trials.chosen(method, task, base, store, search))[0] is None:
        asked.append([settings.passes for settings in result[1]])
        for settings in result[1]:
            store.make(settings)
    full = task.passes
    assert asked[0] == [full / 4] * 4
    assert sorted(asked[1]) == [full / 2, full / 2, full, full]
    bare = {name: value for name, value in result[0].items() if name != "length"}
    assert bare in found
    half = trials.stopped(base, 0.5)
    assert trajectories(method, task, 0, half, share=0.5)[0].passes == full / 4
    assert trajectories(METHODS["ensemble 2"], task, 0, half)[1].passes == full / 4


@pytest.mark.parametrize(("overfits", "length"), [(True, 0.5), (False, 1.0)])
def test_the_stopping_point_is_judged_at_the_full_budget(tmp_path, monkeypatch, overfits, length):
    """Made-up NLLs: a quarter of the budget is too short, the whole may be too long."""
    method, task, store = METHODS["SGD"], TASKS["digits"], Store(tmp_path)
    monkeypatch.setattr(store, "missing", lambda runs: [])
    worst_end = 1.0 if overfits else 0.0

    def nll(method, chains, store):
        part = chains[0].passes / task.passes
        return {0.25: 3.0, 0.5: 0.5, 1.0: worst_end}[part]

    monkeypatch.setattr(trials, "validation_nll", nll)
    search = trials.Search(4, 2, lengths=(1.0, 0.5))
    base = {"lr": 0.05, "prior_variance": 0.2}
    found, _ = trials.chosen(method, task, base, store, search)
    assert found.get("length", 1.0) == length


def test_finalists_are_judged_by_their_mean_over_seeds_and_beyond_an_end(tmp_path, monkeypatch):
    """Made-up NLLs: lr 0.29 is best of the range, and what lies beyond its end is better still."""
    method, task, store = METHODS["SGD"], TASKS["digits"], Store(tmp_path)
    base, asked = {"lr": 0.29, "prior_variance": 0.2}, []
    search = trials.Search(3, 2, final_seeds=3, widened=True)
    monkeypatch.setattr(store, "missing", lambda runs: [])

    def nll(method, chains, store):
        run = chains[0]
        asked.append((run.seed, run.passes))
        luck = {99: 0.5 * (run.lr < 0.29), 98: 0.0, 97: 0.0}[run.seed]  # of the first seed alone
        return abs(np.log(run.lr / 0.7)) - luck

    monkeypatch.setattr(trials, "validation_nll", nll)
    found, missing = trials.chosen(method, task, base, store, search)
    assert missing == []
    assert found["lr"] == trials.beyond(method, base)[0]["lr"] == 0.7021
    assert found["prior_variance"] == 0.2
    short, full = task.passes / 4, task.passes
    assert asked[:3] == [(99, short)] * 3
    assert asked[3:5] == [(99, full)] * 2
    assert asked[5:11] == [(99, full), (98, full), (97, full)] * 2  # the best two
    assert asked[11:] == [(99, full), (98, full), (97, full)] * 3  # the pick and two beyond it


def test_the_page_shows_what_the_trials_chose():
    def record(**knobs):
        return {0: {"knobs": knobs}}

    at_the_end = record(lr=0.011, prior_variance=0.2, momentum=0.9)
    results = {
        "digits": {"SGD": at_the_end, "AdamW": record(lr=1e-3, weight_decay=0.01)},
        "wine-red": {"SGD": record(lr=0.05, prior_variance=0.25)},
    }
    text = page.chosen(results)
    assert "| SGD | lr, prior_variance | 0.011, 0.2 | 0.05, 0.25 |" in text
    assert "| AdamW | lr, weight_decay | 0.001, 0.01 | – |" in text
    assert "Within a tenth of the end of a range: 1 of 6." in text


def test_tables_and_page(tiny, few, tmp_path, monkeypatch):
    tasks, store = [tiny["tiny"], tiny["tiny-bn"]], Store(tmp_path / "store")
    monkeypatch.setattr(page, "TASKS", tiny)
    monkeypatch.setattr(plan, "TASKS", tiny)
    work(lambda: leagues.missing("own", tasks, store), store)
    scores("own", tasks, store, tmp_path / "results")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("before\n{}\nold\n{}\nafter\n".format(*readme.MARKS))
    page.write(tmp_path, tmp_path / "results")
    shown = (tmp_path / "README.md").read_text()
    assert "EMCMC against SGD in NLL" in shown
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter\n")
    assert "old" not in shown
    text = (tmp_path / "docs" / "tournament.md").read_text()
    assert "Development tasks" in text
    assert "| EMCMC |" in text
    assert "Confirmation" not in text
    assert "- No trials: every method by its own recipe: tiny-start.\n" in text
    assert "- 16 trials for every method: tiny, tiny-bn, tiny-start.\n" in text
    found = table.read(tmp_path / "results" / "own")
    nll = table.values(found["tiny"]["SGD"], "nll")
    assert f"{np.mean(list(nll.values())):.4f}" in table.means(found, "nll")
    assert "Together" in plan.table(tasks)


def test_ingredients_and_networks(tiny, few, tmp_path, monkeypatch):
    task, store = tiny["tiny"], Store(tmp_path / "store")
    monkeypatch.setattr(extra, "methods_of", lambda task: [METHODS[name] for name in FEW])
    runs = extra.ingredient_runs(task)
    for _, chains in runs.values():
        for settings in chains:
            store.make(settings)
    extra.write("ingredients", runs, store, tmp_path)
    rows = json.loads((tmp_path / "ingredients.json").read_text())["rows"]
    nll = {tuple(row["key"]): row["measures"]["nll"] for row in rows}
    assert len(nll) == 8 * task.seeds
    assert len({round(value, 12) for (_, seed), value in nll.items() if seed == 0}) == 8
    assert extra.networks("own", task, store) == {}  # two seeds are too few for K


def test_budgets_compress_the_schedule(tiny):
    runs = extra.budget_runs(tiny["tiny"])
    passes = {key[:2]: sum(s.passes for s in chains) for key, (_, chains) in runs.items()}
    assert all(spent == pytest.approx(budget) for (_, budget), spent in passes.items())


def test_a_half_must_be_named(tmp_path):
    with pytest.raises(SystemExit, match="--half"):
        command.main("text", ["run", "--store", str(tmp_path)])


def test_thinning_keeps_the_last():
    assert thinned(np.arange(5), 2).tolist() == [1, 4]
    assert thinned(np.arange(3), 8).tolist() == [0, 1, 2]

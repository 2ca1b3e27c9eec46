"""Items by docs/protocol.md: smoke scale, pairs by seed, verdicts, resuming, one store."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as distributions

from entropy_mcmc_reproduction import regression, regression_view, stored_runs
from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.items import MODULES, item
from entropy_mcmc_reproduction.jobs import Place
from entropy_mcmc_reproduction.published import ENSEMBLES, PUBLISHED
from entropy_mcmc_reproduction.running import reproduce
from entropy_mcmc_reproduction.seeds import by_seed, paired
from entropy_mcmc_reproduction.study_items import STUDIES
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, UNDECIDED
from tournament import stats
from tournament.methods import METHODS
from tournament.settings import Settings

EMCMC = METHODS["EMCMC"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("second")


def make(name, base):
    reproduce([name], "smoke", results=base / "results", work=base / "work")
    return json.loads((base / "results" / "smoke" / "items" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", MODULES)
def test_every_item_by_one_command(name, base):
    found = make(name, base)
    assert found["rows"]
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert found["verdicts"]
    assert found["runs"] == found["wanted_runs"]
    assert not any("nan" in cell for row in found["rows"] for cell in row)
    for figure in found["figures"]:
        assert (base / "results" / "smoke" / "items" / f"{figure}.png").stat().st_size > 5_000


def test_interrupted_and_continued_it_gives_the_same_table(base, tmp_path, monkeypatch):
    whole, calls, measure = make("gibbs", base), [], stored_runs.measure

    def stops(settings, place):
        calls.append(settings["knobs"]["guide_update"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(settings, place)

    monkeypatch.setattr(stored_runs, "measure", stops)
    with pytest.raises(KeyboardInterrupt):
        make("gibbs", tmp_path)
    found = make("gibbs", tmp_path)
    assert calls == ["euler", "exact", "gibbs", "gibbs", "euler", "exact", "gibbs"]
    assert (found["rows"], found["verdicts"]) == (whole["rows"], whole["verdicts"])


def test_the_tournaments_runs_are_read_not_made_again(base, tmp_path, monkeypatch):
    whole = make("gibbs", base)
    monkeypatch.setenv("EMCMC_RUNS", str(base / "work" / "smoke" / "store"))
    monkeypatch.setattr(stored_runs.Store, "make", None)  # to call it would fail
    assert make("gibbs", tmp_path)["rows"] == whole["rows"]


@pytest.mark.parametrize("name", ["gibbs", "cifar-tuned"])
def test_with_stored_only_what_the_store_has_is_shown_and_nothing_trained(
    name, base, tmp_path, monkeypatch
):
    make(name, base)
    jobs = item(name).jobs("smoke", Place(0, 0))
    lost = base / "results" / "smoke" / "runs" / f"{jobs[-1].name}.json"
    store = tmp_path / "store"
    shutil.copytree(base / "work" / "smoke" / "store", store)
    (store / f"{json.loads(lost.read_text())['result']['runs'][0]}.json").unlink()
    monkeypatch.setenv("EMCMC_RUNS", str(store))
    monkeypatch.setattr(stored_runs.Store, "make", None)  # to call it would fail
    places = {"results": tmp_path / "results", "work": tmp_path / "work"}
    reproduce([name, "smoothing"], "smoke", **places, stored_only=True)
    made = {file.name for file in (tmp_path / "results").rglob(f"runs/{STUDIES[name].group}/*")}
    wanted = {job.name.split("/")[1] + ".json" for job in jobs}
    assert made == wanted - {lost.name}
    items = tmp_path / "results" / "smoke" / "items"
    found = json.loads((items / f"{name}.json").read_text())
    assert (found["runs"], found["wanted_runs"]) == (len(wanted) - 1, len(wanted))


def test_committed_scores_stand_for_their_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_runs.Store, "make", None)  # to call it would fail
    place = Place(tmp_path / "results" / "smoke", tmp_path / "work")
    job = next(job for job in item("fashion-mlp").jobs("smoke", place) if "/EMCMC-1" in job.name)
    runs = [run.key for run in stored_runs._runs(job.settings, stored_runs.store_of(place)).wanted]
    scores = {"measures": {"nll": 0.5}, "cost": 3.0, "train_loss": 0.1}
    record = {**scores, "seconds": 60.0, "runs": runs}
    file = tmp_path / "results" / "tournament" / "own" / "digits" / "EMCMC-1.json"
    file.parent.mkdir(parents=True)
    assert not stored_runs.is_made(job, place)
    file.write_text(json.dumps({**record, "diverged": False, "knobs": {}, "seed": 1}))
    assert stored_runs.is_made(job, place)
    assert stored_runs.measure(job.settings, place) == record
    file.write_text(json.dumps({**record, "diverged": True}))
    assert "finite" in stored_runs.measure(job.settings, place)["diverged"]


@pytest.mark.parametrize("changes", [{"kept": 4}, {"readout": "both"}])
def test_committed_scores_do_not_stand_for_another_readout(changes, tmp_path):
    place = Place(tmp_path / "results" / "smoke", tmp_path / "work")
    made = [stored_runs.job("x", m, "digits", 0) for m in (EMCMC, replace(EMCMC, **changes))]
    runs = [stored_runs._runs(job.settings, stored_runs.store_of(place)) for job in made]
    assert runs[0].wanted == runs[1].wanted  # the same trajectory, read off in two ways
    file = tmp_path / "results" / "tournament" / "own" / "digits" / "EMCMC-0.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"runs": [run.key for run in runs[0].wanted]}))
    assert [stored_runs.is_made(job, place) for job in made] == [True, False]
    file.write_text(json.dumps({"runs": ["another"]}))
    assert not stored_runs.is_made(made[0], place)


def test_tuned_seeds_share_their_trials_and_settings(base):
    found = make("cifar-tuned", base)
    runs = base / "results" / "smoke" / "runs" / "cifar-tuned"
    results = [json.loads((runs / f"EMCMC-{seed}.json").read_text())["result"] for seed in (0, 1)]
    assert results[0]["knobs"] == results[1]["knobs"]
    assert results[0]["runs"] != results[1]["runs"]
    assert found["notes"][-1].startswith("Chosen: SGD: lr")
    searches = [job.settings["search"] for job in item("cifar-tuned").jobs("laptop", Place(0, 0))]
    assert all(search == searches[0] for search in searches)  # the same for every method
    assert searches[0]["trials"] == 16
    assert searches[0]["lengths"] == [1.0, 0.5]


def test_pairs_are_matched_by_seed():
    results = {f"a-{s}": {"n": s} for s in (3, 10, 2)} | {f"b-{s}": {"n": -s} for s in (10, 2, 7)}
    assert list(by_seed(results, "a")) == [2, 3, 10]
    assert paired(results, "a", "b", "n") == ([2.0, 10.0], [-2.0, -10.0], 2)


def results_of(**labels):
    return {
        f"{label}-{seed}": {"measures": {"nll": nll, "accuracy": 1 - nll}}
        for label, values in labels.items()
        for seed, nll in enumerate(values)
    }


def test_verdicts_of_all_four_kinds():
    noise = np.array([1.0, -1.0, 2.0, -2.0, 0.5, -0.5])
    base = 0.5 + 0.01 * noise
    results = results_of(
        ours=base,
        worse=base + 0.1 + 1e-3 * noise[::-1],
        better=base - 0.1 + 1e-3 * noise[::-1],
        same=base + 1e-3 * noise[::-1],
        unclear=base + 0.05 * noise[::-1],
    )
    others = ("worse", "better", "same", "unclear")
    found = verdicts([Claim(f"than {name}", "ours", name) for name in others], results)
    assert [v.decision for v in found] == [HOLDS, FAILS, ALIKE, UNDECIDED]
    assert found[0].effect[0] == pytest.approx(0.1)
    assert found[0].effect[1] < 0.1 < found[0].effect[2]


def test_holm_is_within_a_measure():
    gain = np.array([0.8, 1.2, 1.0, 0.4, 1.6, 0.2])  # t = 5.2 with 5 degrees: p = 0.0036
    results = results_of(ours=np.zeros(6), theirs=gain)
    alone = verdicts([Claim("c", "ours", "theirs")], results)
    assert alone[0].decision == HOLDS
    many = [Claim(f"c{i}", "ours", "theirs") for i in range(20)]
    assert {v.decision for v in verdicts(many, results)} == {UNDECIDED}
    other = [Claim(f"c{i}", "ours", "theirs", "accuracy") for i in range(20)]
    found = verdicts([*other, Claim("c", "ours", "theirs")], results)
    assert found[0].decision == HOLDS  # NLL comes first, and is a family of its own
    assert {v.decision for v in found[1:]} == {UNDECIDED}


def test_splits_that_share_rows_are_corrected_for():
    draws = np.random.default_rng(0)
    ours, theirs = draws.normal(size=20), draws.normal(size=20)
    common = {"rows": 90, "test_rows": 10}
    found = regression_view.corrected(
        {"log_likelihood": ours, **common}, {"log_likelihood": theirs, **common}
    )
    gains = ours - theirs
    error = gains.std(ddof=1) * math.sqrt(1 / 20 + 10 / 90)
    assert found.mean == pytest.approx(gains.mean())
    assert found.p == pytest.approx(2 * distributions.t.sf(abs(gains.mean()) / error, 19))
    assert found.high - found.mean == pytest.approx(distributions.t.ppf(0.975, 19) * error)


def test_regressions_are_judged_over_tables_and_rivals():
    draws = np.random.default_rng(1)
    base = {f"t{i}": draws.normal(size=20) for i in range(6)}
    shift = {"emcmc": 0.0, "sgd": -0.5, "ensemble": 0.4, "sghmc": 0.0, "hmc": 1.0}
    found = {
        table: {
            method: {
                "log_likelihood": list(
                    values + by + (0 if method == "emcmc" else 0.02 * draws.normal(size=20))
                ),
                "rows": 90,
                "test_rows": 10,
            }
            for method, by in shift.items()
        }
        for table, values in base.items()
    }
    gains = regression_view.gains_of(found)
    assert len(gains) == 6 * 4
    assert all((g.p is None) == (g.rival == "hmc") for g in gains)
    family = [g for g in gains if g.rival != "hmc"]
    assert [g.p for g in family] == list(stats.holm([g.difference.p for g in family]))
    made = {v.claim.rpartition(" ")[2]: v for v in regression_view.against_rivals(gains)}
    decisions = {name: v.decision for name, v in made.items()}
    assert decisions["SGD"] == UNDECIDED  # six tables: Wilcoxon's least p is 0.031, times three
    assert "higher on 6 of 6 tables (decided higher on t0, t1" in made["SGD"].measured
    assert "higher on 0 of 6 tables" in made["ensemble"].measured
    twice = [*gains, *(replace(g, table=f"{g.table}b") for g in gains)]
    decisions = {v.claim: v.decision for v in regression_view.against_rivals(twice)}
    assert decisions["EMCMC has a better log-likelihood than SGD"] == HOLDS
    assert decisions["EMCMC has a better log-likelihood than Deep ensemble"] == FAILS
    assert decisions["EMCMC has a better log-likelihood than HMC (reference)"] == UNDECIDED


def test_the_figure_of_the_regressions_names_what_it_shows(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(regression_view, "save", lambda figure, path: drawn.append(figure))
    result = {"log_likelihood": [-0.5, -0.6], "coverage": [0.9, 0.95]}
    found = {"yacht": {"emcmc": result}, "energy": {"emcmc": result, "sgd": result}}
    regression_view.draw(tmp_path, found)
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["SGD", "EMCMC"]
    ticks = drawn[0].axes[0].get_xticks()
    assert {0.0, 0.1, 0.2, 0.5} <= set(ticks)
    low, high = drawn[0].axes[0].get_xlim()
    assert low <= min(ticks) <= max(ticks) <= high


def test_every_method_has_the_same_gradients_and_trials():
    place = Place(None, None)
    made = item("regression").jobs("laptop", place)
    references = [job for job in made if job.settings["method"] == "hmc"]
    assert [job.settings["table"] for job in references] == ["yacht", "boston"]
    made = [job for job in made if job not in references]
    assert len(made) == len(regression.SPACES) * len(regression.TABLES)
    assert made[0].settings["method"] == "emcmc"
    same = {
        (s["table"], regression.gradients(s, 1000), s["trials"], s["finalists"], s["hidden"])
        for s in (job.settings for job in made)
    }
    assert len(same) == len(regression.TABLES)
    assert set(ENSEMBLES.nll) == set(regression.TABLES)
    assert all(set(p.nll) <= set(regression.TABLES) for p in PUBLISHED)


def test_the_search_of_the_regressions_never_sees_the_test_rows(monkeypatch):
    """With the test targets destroyed, everything but the scores is the same."""
    (job,) = [
        j
        for j in item("regression").jobs("smoke", Place(None, None))
        if j.settings["method"] == "sghmc"
    ]
    whole = regression.compute(job.settings, Place(None, None))
    of = regression.Splits.of

    def blind(values, test):
        splits = of(values, test)
        splits.judged_targets.fill_(1e3)
        return splits

    monkeypatch.setattr(regression.Splits, "of", blind)
    other = regression.compute(job.settings, Place(None, None))
    for name in ("chosen", "noise", "validation_log_likelihood", "finalists_log_likelihood"):
        assert other[name] == whole[name]
    assert other["log_likelihood"] != whole["log_likelihood"]


def test_claims_of_the_studies_name_variants_that_exist():
    for name, study in STUDIES.items():
        labels = {v.label for v in study.variants}
        assert len(labels) == len(study.variants), name
        for claim in study.claims:
            assert {claim.ours, claim.theirs} <= labels


def test_runs_of_the_tournament_keep_their_keys():
    """New fields of a setting are left out at their default: this key is in its first store."""
    old = Settings("digits", 0, "sgd", 48, 0.1, prior_variance=0.146)
    assert old.key == "70b8812a92a3d645"
    assert (
        Settings("digits", 0, "sgd", 48, 0.1, prior_variance=0.146, decay="linear").key != old.key
    )
    with pytest.raises(ValueError, match="decay must be one of"):
        Settings("digits", 0, "sgd", 48, 0.1, decay="cyclic")

"""The benchmark of tables: splits, scores and the page, on made results."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from tabular import command, comparison, page, readme, scores, sizes, targets, tuned
from tabular.catalogue import TABLES, Table
from tabular.comparison import OURS, UNTUNED, Comparison
from tabular.methods import METHODS

NAMES = UNTUNED["classification"]


def made(name, nlls, half="development", task="classification", rows=400, **more):
    """A record with these NLLs, (method, split) → value."""
    fit = {"ece": 0.1, "brier": 0.2, "accuracy": 0.9, "fit_seconds": 1.0, "predict_seconds": 0.1}
    fit |= {"test_rows": 10, "plain_nll": 0.7, **more}
    fits = {f"{m}/{s}": {**fit, "nll": v} for (m, s), v in nlls.items()}
    record = {"table": name, "task": task, "half": half, "rows": rows, "columns": 2}
    return record | {"fits": fits}


def three_tables():
    other = "mlp"
    return [
        made("a", {(OURS, 0): 0.1, (other, 0): 0.3, (OURS, 1): 0.3, (other, 1): 0.3}),
        made("b", {(OURS, 0): 0.2, (other, 0): 0.1, ("rare", 0): 0.0}),
        made("c", {(OURS, 0): 0.9, (other, 0): 1.0, (OURS, 1): 9.0}),
    ]


def many_tables(task, splits=10, tables=12, half="confirmation"):
    """Ours is best but for the last table; the others are worse in their order."""
    records = []
    for t in range(tables):
        nlls = {
            (name, s): 0.1 + 0.1 * (i if t < tables - 1 else -i) + 0.001 * t
            for i, name in enumerate(UNTUNED[task])
            for s in range(splits)
        }
        shares = {"coverage": 0.95, "crps": 0.1, "rmse": 0.3, "width": 1.0}
        shares |= {f"coverage_{part}": 0.95 for part in "abc"}
        records.append(made(f"{task[0]}{t}", nlls, half, task, **shares))
    return records


def test_methods_are_compared_on_common_tables_and_splits():
    compared = Comparison.of(three_tables(), (OURS, "mlp"))
    np.testing.assert_allclose(compared.means("nll"), [[0.2, 0.3], [0.2, 0.1], [0.9, 1.0]])
    np.testing.assert_allclose(compared.ranks("nll"), [4 / 3, 5 / 3])
    assert compared.wins("nll") == [2]
    assert compared.place("nll") == 1
    assert len(Comparison.of(three_tables(), (OURS, "mlp"), 2).tables) == 1
    assert not Comparison.of(three_tables(), (OURS, "rare"))


def test_a_fit_that_gave_nan_is_left_out_and_named():
    tables = [*three_tables(), made("d", {(OURS, 0): 0.1, ("mlp", 0): np.nan})]
    compared = Comparison.of(tables, (OURS, "mlp"))
    assert len(compared.tables) == 3
    assert comparison.failed(tables, "mlp") == {"d": 1}
    text = page.part(tables, "classification", (OURS, "mlp"), 1, "title")
    assert "Left out, for predictions were NaN: mlp on d." in text


def test_a_table_that_is_worse_than_nothing_is_named():
    assert comparison.worse_than_nothing(three_tables()[:2]) == {}
    worse = comparison.worse_than_nothing([made("c", {(OURS, 0): 0.9})])
    assert worse == {"c": pytest.approx(0.2)}


def test_holm_multiplies_the_smallest_p_most():
    draws = np.random.default_rng(0)
    first = draws.standard_normal(30)
    others = [first + 1 + 0.1 * draws.standard_normal(30), first + 0.2 * draws.standard_normal(30)]
    raw = [comparison.holm(np.stack([first, o], axis=1))[0] for o in others]
    both = comparison.holm(np.stack([first, *others], axis=1))
    assert both == pytest.approx([2 * raw[0], max(2 * raw[0], raw[1])])


def test_verdicts_need_a_decision_and_a_direction():
    tables = many_tables("classification")
    better = Comparison.of(tables, (OURS, "mlp")).verdicts("nll")
    worse = Comparison.of(tables, ("mlp", OURS)).verdicts("nll")
    few = Comparison.of(tables[:3], (OURS, "mlp")).verdicts("nll")
    assert (better, worse, few) == ({"mlp": "better"}, {OURS: "worse"}, {"mlp": "open"})


def test_the_critical_distance_is_that_of_the_table_of_demsar():
    """k = 5 and N = 14: 2.728·√(5·6/(6·14)) = 1.630."""
    compared = Comparison(NAMES[:5], tuple([{}] * 14))
    assert compared.critical_distance() == pytest.approx(2.728 * np.sqrt(30 / 84), abs=2e-3)


def test_coverage_far_from_its_level_is_named():
    def table(name, share, rows):
        return made(name, {(OURS, 0): 0.1}, task="regression", rows=rows, coverage=share)

    tables = [table("near", 0.93, 10_000), table("far", 0.91, 10_000), table("few", 0.9, 100)]
    assert comparison.far_coverage(tables) == {"far": pytest.approx(0.91)}


def test_targets_are_met_or_missed_by_how_much(tmp_path):
    found = targets.confirmation_targets(*map(many_tables, UNTUNED))
    by_name = {t.asked: t for t in found}
    first = next(t for name, t in by_name.items() if "classification: first" in name)
    assert first.met  # ECEs are all equal: ours shares the first place in them
    behind = Comparison.of(many_tables("classification"), NAMES[::-1])
    assert not targets.first(behind, ("nll",), "first").met
    assert "not run" in {t.verdict for t in found if "tuned" in t.asked}
    assert by_name["regression: 95 % intervals hold 92–98 %, pooled"].met
    assert targets.at_most("x", 7.0, 5, "{:.1f}").found == "7.0, 2.0 too much"
    known = tmp_path / "known.json"
    found = {"noise": {"over entropy": [0.004, 0.001]}, "times": {"a": [4.0, 1.0], "b": [8.0, 0.5]}}
    known.write_text(json.dumps(found))
    measured = [(t.found, t.met) for t in targets.known_targets(known)]
    times = [("10.0, 5.0 too much", False), ("16.0, 1.0 too much", False)]
    assert measured == [("+0.0040", True), *times]


def test_bde_is_decided_once_by_all_tables_and_by_those_not_seen_before():
    seen = targets.SEEN["bde"]

    def tables(count, better):
        names = [*seen, *(f"new{i}" for i in range(count - len(seen)))]
        gaps = [0.1 + 0.01 * i for i in range(count)]
        return [
            made(name, {(OURS, 0): 0.5, ("bde", 0): 0.5 + (gap if better(name) else -gap / 20)})
            for name, gap in zip(names, gaps, strict=True)
        ]

    def verdict(*arguments):
        return targets.bde_target(tables(*arguments), "bde", "nll", "asked")

    assert verdict(targets.BDE_TABLES, lambda _: True).met
    assert "of those not seen before, 21 of 21" in verdict(27, lambda _: True).found
    assert verdict(26, lambda _: True).verdict == "not finished"
    only_seen = verdict(targets.BDE_TABLES, lambda name: name in seen or name < "new13")
    assert not only_seen.met


def test_ranks_by_rows_and_the_duel_with_boosting():
    def table(name, rows, ours, boosting):
        nlls = {(m, s): 0.5 + 0.01 * s for m in NAMES for s in range(10)}
        nlls |= {(OURS, s): ours + 0.01 * s + 0.002 * (s % 2) for s in range(10)}
        nlls |= {("lightgbm", s): boosting + 0.01 * s for s in range(10)}
        return made(name, nlls, "confirmation", rows=rows)

    tables = [table("little", 200, 0.3, 0.4), table("large", 9000, 0.3, 0.2)]
    tables.append(table("close", 4000, 0.3, 0.3009))
    text = sizes.section({"classification": Comparison.of(tables, NAMES, 10)})
    assert "Of 2 tables with more than 3,000 rows they have the lower NLL on 2 (1 decided)" in text
    assert "of 1 smaller ones on 0 (0 decided)" in text
    assert "| more than 3,000 | 2 | 2.00 |" in text
    assert "| large | classification | 9000 | 2 | 0.346 | 0.245 | 0.101 | yes |" in text
    assert "| up to 300 | 1 | 0 | 0 | 1 | 1 | 1.0 against 1.0 |" in text


def test_splits_that_share_rows_decide_less():
    """Ten gaps of mean 1 and standard deviation 2: t = 1/(2·√(1/10 + 1/3)), 9 degrees."""
    gaps = np.random.default_rng(0).standard_normal(10)
    gaps = 1 + 2 * (gaps - gaps.mean()) / gaps.std(ddof=1)
    expected = 2 * student.sf(1 / (2 * np.sqrt(13 / 30)), 9)
    assert sizes.corrected_p(gaps) == pytest.approx(expected)
    assert sizes.corrected_p(gaps[:1]) == 1.0


def test_the_page_has_both_halves_and_the_best_in_bold(tmp_path):
    def read(task, half):
        return many_tables(task, half=half) if half == "confirmation" else []

    text = page.render(read, tmp_path / "none.json")
    assert "## The development half" in text
    assert "Not run yet." in text
    assert "| c0 | 400 | 10 | **0.100** | 0.200 |" in text
    assert "Ahead of ours by mean rank in NLL: none." in text
    assert "lightgbm on 1" in text
    fewer = page.section("confirmation", {"classification": many_tables("classification", 3)})
    assert "tables with fewer splits" in fewer


def test_the_readme_has_its_part_between_marks():
    part = readme.block(lambda task, half: many_tables(task, half=half))
    assert part.startswith(readme.BEGIN)
    assert part.endswith(readme.END)
    assert max(map(len, part.splitlines())) <= 120
    assert "decided better than logistic" in part
    text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter"
    assert readme.put(text, part) == f"before\n{part}\nafter"
    with pytest.raises(ValueError, match="no part"):
        readme.put("nothing", part)


def test_page_and_readme_are_those_of_the_results():
    assert page.PAGE.read_text() == page.render()
    assert readme.block() in readme.README.read_text()


def test_a_search_takes_the_best_of_its_trials(monkeypatch):
    monkeypatch.setattr(tuned, "TRIALS", 4)
    draws = np.random.default_rng(0)
    x = pd.DataFrame(draws.standard_normal((60, 2)))
    y = np.where(x[0] + 0.3 * draws.standard_normal(60) > 0, "up", "down")
    model = METHODS["classification"]["tuned-logistic"](0).fit(x, y)
    assert model[-1].C != 1.0
    assert set(model.classes_) == {"up", "down"}
    scaled = METHODS["regression"]["mlp"](0)
    assert tuned.prefix(scaled) == "regressor__mlpregressor__"
    assert tuned.minus_nll(model, x[:2], ["up", "unseen"]) < np.log(tuned.LEAST) / 2 + 1


def test_a_fit_is_made_once_and_confirmation_tables_are_left_alone(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": np.arange(40.0)})
    table = Table("made", "classification", "made", "")
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(command, "TABLES", {"made": table})
    monkeypatch.setattr(command.loaders, "load", lambda _: (frame, pd.Series(["x", "y"] * 20)))
    other = {"development": "confirmation", "confirmation": "development"}[table.half]
    command.main([other, "--splits", "1", "--methods", "logistic"])
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        command.main([table.half, "--splits", "1", "--methods", "logistic"])
    record = json.loads((tmp_path / "made.json").read_text())
    assert set(record["fits"]) == {"logistic/0"}
    before = (tmp_path / "made.json").stat().st_mtime_ns
    command.main([table.half, "--splits", "1", "--methods", "logistic"])
    assert (tmp_path / "made.json").stat().st_mtime_ns == before


def test_rows_of_unknown_classes_are_not_tested():
    y = pd.Series(["x"] * 20 + ["y"] * 19 + ["once"])
    x = pd.DataFrame({"a": np.arange(40.0)})
    for split in range(5):
        (_, train), (_, test) = command.divided(TABLES["iris"], x, y, split)
        assert set(test) <= set(train)


def test_crps_of_quantiles_is_that_of_the_closed_form():
    class Normal:
        def predict(self, x):
            return np.zeros(len(x))

        def predict_interval(self, x, level):
            return np.tile(norm.interval(level), (len(x), 1))

        def predict_quantiles(self, x, levels):
            return np.tile(norm.ppf(levels), (len(x), 1))

        def log_density(self, x, y):
            return norm.logpdf(y)

    y = np.array([-1.0, 0.0, 0.7])
    actual = scores.ours(Normal(), np.zeros((3, 1)), y)[-1]
    np.testing.assert_allclose(actual, scores.gaussian_crps(y, 0.0, 1.0), atol=0.02)

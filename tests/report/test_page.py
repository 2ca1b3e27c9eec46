"""The page of real runs, read by a parser: complete, closed in itself, accessible, escaped."""

import itertools
import json
import math
import re
import shutil
from html.parser import HTMLParser

import pytest

from entropy_mcmc.cli import main
from entropy_mcmc.report.command import write_report
from entropy_mcmc.report.member_scores import members, whole
from entropy_mcmc.report.run_data import collect
from entropy_mcmc.report.sections import sections
from run.workers import TRUSTED

VOID = {"meta", "link", "img", "input", "br", "line", "path", "rect", "circle"}
EVIL = '"><script>alert(1)</script>'


class Reader(HTMLParser):
    """Elements with their attributes; closing tags must match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.errors = [], [], []
        self.feed(text)
        self.close()
        self.errors += [f"{name} is never closed" for name in self.open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> closes nothing")

    def all(self, *tags):
        return [attrs for tag, attrs, _ in self.elements if tag in tags]


@pytest.fixture(scope="module")
def page_of(runs, tmp_path_factory):
    """Text of the page of some runs."""
    made = {}

    def build(*names):
        if names not in made:
            target = tmp_path_factory.mktemp("pages") / "page.html"
            write_report([runs[name] for name in names], output=target, trust=TRUSTED)
            made[names] = target.read_text(encoding="utf-8")
        return made[names]

    return build


ALL = [("emcmc",), ("regression",), ("classes",), ("without_test",)]
ALL += [("emcmc", "sgld"), ("emcmc", "sgld", "regression")]


@pytest.mark.parametrize("names", ALL, ids="+".join)
def test_the_page_is_well_formed_and_closed_in_itself(page_of, names):
    text = page_of(*names)
    reader = Reader(text)
    assert not reader.errors
    assert len(text.encode()) < 2_000_000
    links = [a[k] for a in reader.all("a", "link", "img", "script", "use", "image") for k in a
             if k in ("href", "src", "xlink:href", "srcset")]  # fmt: skip
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"url\(|@import|https?://", text)
    ids = [a["id"] for _, a, _ in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = [a[k] for _, a, _ in reader.elements for k in ("aria-controls", "aria-labelledby")
              if k in a]  # fmt: skip
    wanted += [link[1:] for link in links if link.startswith("#")]
    assert set(wanted) <= set(ids)


@pytest.mark.parametrize("names", ALL, ids="+".join)
def test_every_figure_has_words_and_a_table_with_numbers(page_of, names):
    text = page_of(*names)
    figures = re.findall(r"<figure\b.*?</figure>", text, re.S)
    assert figures
    for figure in figures:
        if "picture" in figure:
            assert re.search(r'alt="[^"]{20,}"', figure)
            continue
        assert re.search(r'<svg [^>]*role="img" aria-label="[^"]{10,}"', figure)
        body = figure.split("<tbody>")[1]
        assert body.count("<tr>") >= 1
        assert "<path d=" in figure or "<circle" in figure
    assert all(a.get("alt") for a in Reader(text).all("img"))


@pytest.mark.parametrize("names", ALL, ids="+".join)
def test_headings_and_landmarks(page_of, names):
    reader = Reader(page_of(*names))
    levels = [int(tag[1]) for tag, _, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    tags = {tag for tag, _, _ in reader.elements}
    assert {"header", "main", "nav", "footer", "section"} <= tags
    assert reader.all("html")[0]["lang"] == "en"


def keys(text, prefix="r0"):
    return re.findall(rf'<section id="{prefix}-(\w+)"', text)


def test_sections_of_an_image_run(page_of):
    assert keys(page_of("emcmc")) == [
        *("summary", "setup", "learning", "quality", "calibration", "ood"),
        *("corruption", "diagnostics", "flatness", "images"),
    ]


def test_a_doubtful_learning_coefficient_is_said_to_be_so(page_of):
    text = page_of("emcmc")
    assert "<td>3.5 ± 0.1?</td>" in text
    assert "γ decides the learning coefficient of emcmc theta, emcmc guide: do not read" in text
    assert "R-hat 1.125; temperature 7.5 measured, 7.25 set" in text
    assert "Learning coefficient of emcmc theta, not trustworthy: the chains have not" in text
    assert "γ = 200 is a convention" in text
    assert "9.25 at γ/4, 3.25 at γ and 0.75 at 4γ" in text


def test_sections_of_tables(page_of):
    assert keys(page_of("regression")) == [
        *("summary", "setup", "learning", "quality", "regression", "diagnostics"),
    ]
    assert "images" not in keys(page_of("classes"))
    text = page_of("without_test")
    assert "quality" not in keys(text)
    assert "made without test data" in text


def test_comparison_sections(page_of):
    text = page_of("emcmc", "sgld")
    assert keys(text, "cmp") == [
        *("overview", "settings", "learning", "predictions", "corruption", "flatness"),
    ]
    assert 'data-switch="1"' in text
    mixed = page_of("emcmc", "sgld", "regression")
    assert "do not share their data" in mixed


def test_the_marks_of_the_learning_curve_are_those_of_the_schedule(runs, page_of):
    run = collect(runs["emcmc"])
    wide = page_of("emcmc").split('class="drawing for-wide"')[1].split("for-narrow")[0]
    assert wide.count('class="region burn-in"') == wide.count('class="region noisy"') == 2
    assert wide.count('class="upright"') == 1
    assert wide.count('class="kept"') == len({sample.step for sample in run.samples}) == 4


def test_scores_are_those_of_the_evaluation(runs):
    """All test rows fit, so that the page and `emcmc evaluate` must agree."""
    for name in ("emcmc", "regression"):
        run = collect(runs[name], trust=TRUSTED)
        told = {"whole posterior": run.method, "θ only": f"{run.method} theta"}
        told |= {"θ_a only": f"{run.method} guide", "baseline: one SGD network": "sgd"}
        scored = [member for member in members(run) if member.name in told]
        assert len(scored) == (4 if name == "emcmc" else 3)
        for member in scored:
            line = run.evaluation("test", told[member.name])
            assert member.networks == line["samples"]
            for metric, value in member.scores.items():
                assert value == pytest.approx(line[metric], rel=1e-4, abs=1e-6), (member, metric)


def test_ood_scores_are_those_of_the_evaluation(runs):
    from entropy_mcmc.report.sections import detection

    run = collect(runs["emcmc"])
    expected = run.evaluation("ood:shuffled")["auroc"]
    assert detection(run)["shuffled"]["auroc"] == pytest.approx(expected, abs=1e-4)


def test_fewer_rows_are_said(runs):
    run = collect(runs["emcmc"], limit=50)
    assert len(run.predicted.targets) == 50
    text = "".join(section.html("x") for section in sections(run))
    assert "50 of 360 test rows" in text
    assert "complete test set" in text


def test_a_stream_of_test_batches_is_read_no_further_than_needed(runs):
    from dataclasses import replace

    from entropy_mcmc.report.page_predictions import predict, test_rows
    from entropy_mcmc.run.loaded_run import load_run

    run = load_run(runs["classes"], trust=TRUSTED)
    test, read = run.problem.test, []

    class Stream:
        def __iter__(self):
            for start in range(0, 80, 16):
                read.append(start)
                part = slice(start, start + 16)
                yield test.inputs[part], test.targets[part]

    streamed = replace(run, problem=replace(run.problem, test=Stream()))
    rows = test_rows(streamed, 20)
    assert (len(rows.targets), rows.total, read) == (20, None, [0, 16])
    whole = predict(streamed, 80)
    assert whole.rows.total == 80
    assert (whole.targets == test.targets.numpy()).all()
    expected = run.posterior.predict_proba(Stream()).numpy()
    assert whole.average() == pytest.approx(expected, abs=1e-6)


def test_wrong_images_are_wrong_and_sorted(runs):
    from entropy_mcmc.report.example_images import confidently_wrong, most_uncertain

    predicted = collect(runs["emcmc"]).predicted
    probs = predicted.average()
    places = confidently_wrong(probs, predicted.targets, 1000)
    assert len(places) == int((probs.argmax(1) != predicted.targets).sum())
    confidence = probs[places].max(1)
    assert (confidence[:-1] >= confidence[1:]).all()
    entropy = [-sum(p * math.log(p) for p in row if p > 0) for row in probs.tolist()]
    shown = most_uncertain(probs)
    assert len(shown) == 12
    assert [entropy[place] for place in shown] == pytest.approx(sorted(entropy)[:-13:-1])


def test_nothing_from_files_becomes_markup(runs, tmp_path):
    folder = tmp_path / "a<i>&'\"b"
    shutil.copytree(runs["emcmc"], folder, ignore=shutil.ignore_patterns("report.html"))
    advice = [{"severity": EVIL, "text": EVIL}]
    roles = [{"role": EVIL, "weights": {"within": 1.0}}]
    content = {"severity": EVIL, "text": EVIL, "advice": advice, "roles": roles}
    (folder / "diagnostics.json").write_text(json.dumps(content))
    (folder / "flatness/flatness.json").write_text(json.dumps([{"name": EVIL, "loss": 1.0}]))
    journal = folder / "metrics.jsonl"
    journal.write_text(journal.read_text().replace("brightness", EVIL.replace('"', "'")))
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("cpu_capability: ", "cpu_capability: <i>"))
    text = write_report([folder], output=tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert "<i>" not in text
    assert not Reader(text).errors


@pytest.mark.parametrize("left", ["config.yaml", "config.yaml metrics.jsonl"])
def test_a_page_from_what_is_left(runs, tmp_path, left, capsys):
    for name in left.split():
        shutil.copy(runs["emcmc"] / name, tmp_path / name)
    assert main(["report", str(tmp_path)]) == 1  # the page is there, and the error is said
    assert "the page has no predictions" in capsys.readouterr().err
    text = (tmp_path / "report.html").read_text()
    assert "No predictions were made" in text
    assert "Not judged" in text
    assert str(tmp_path) not in text
    assert not Reader(text).errors


def test_damaged_samples_are_an_error(runs, tmp_path, capsys):
    shutil.copytree(runs["sgld"], tmp_path / "run")
    next((tmp_path / "run/samples").glob("*-theta*")).write_bytes(b"nothing")
    assert main(["report", str(tmp_path / "run")]) == 1
    assert "the page has no predictions" in capsys.readouterr().err


def test_an_unknown_device_is_an_error_before_any_page(runs, tmp_path, capsys):
    target = tmp_path / "new.html"
    assert main(["report", str(runs["sgld"]), "-o", str(target), "--device", "toaster"]) == 1
    assert "device must be one that is here" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize("names", ALL, ids="+".join)
def test_no_path_of_this_machine_is_on_the_page(runs, page_of, names):
    assert str(runs["emcmc"].parent) not in page_of(*names)


def test_damaged_side_files_are_left_out(runs, tmp_path):
    shutil.copytree(runs["classes"], tmp_path / "run")
    (tmp_path / "run/diagnostics.json").write_text("{broken")
    (tmp_path / "run/flatness").mkdir()
    (tmp_path / "run/flatness/flatness.json").write_text("[1, 2]")
    text = write_report([tmp_path / "run"], trust=TRUSTED).read_text()
    assert not {"diagnostics", "flatness"} & set(keys(text))


def test_flatness_from_another_folder(runs, tmp_path):
    target = tmp_path / "page.html"
    other = runs["emcmc"] / "flatness"
    write_report([runs["sgld"]], output=target, flatness=other)
    assert "flatness" in keys(target.read_text())


def test_sample_writes_the_page(runs, capsys):
    for folder in runs.values():
        assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_command(runs, tmp_path, capsys):
    target = tmp_path / "new.html"
    assert main(["report", str(runs["sgld"]), "-o", str(target), "--rows", "60"]) == 0
    assert str(target) in capsys.readouterr().out
    assert main(["report", str(tmp_path)]) == 1
    assert "no run folder" in capsys.readouterr().err
    assert main(["report", str(runs["sgld"]), str(runs["sgld"])]) == 1
    assert "different folders" in capsys.readouterr().err
    assert main(["report", str(runs["sgld"]), "--rows", "0"]) == 1
    assert "rows must be" in capsys.readouterr().err


def test_best_is_marked_only_where_the_rows_decide(runs, page_of):
    from entropy_mcmc.report.score_difference import paired

    wholes = [whole(collect(runs[name])) for name in ("emcmc", "sgld")]
    text = page_of("emcmc", "sgld").split('id="cmp-overview"')[1].split("</section>")[0]
    rows = dict(re.findall(r'<tr data-run="(\d)">(.*?)</tr>', text, re.S))
    cells = [re.findall(r"<td>(.*?)</td>", rows[str(i)]) for i in (0, 1)]
    for place, name in ((2, "accuracy"), (3, "nll")):  # after method and networks
        value, error = paired(wholes[0].rows[name], wholes[1].rows[name])
        decided = abs(value) > 1.96 * error
        first = (value > 0) == (name == "accuracy")
        marked = ["best" in cells[i][place] for i in (0, 1)]
        assert marked == ([first, not first] if decided else [False, False]), name


def test_a_comparison_of_different_data_marks_nothing(page_of):
    text = page_of("emcmc", "sgld", "regression").split('id="cmp-overview"')[1]
    assert 'class="best"' not in text.split("</section>")[0]

"""Small pure pieces of the figures and of the HTML."""

import itertools
import math
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from entropy_mcmc.report.command import names
from entropy_mcmc.report.figures.chart import Frame, Series, chart
from entropy_mcmc.report.figures.learning import thinned
from entropy_mcmc.report.figures.svg import Axis, log_ticks, number, spanning, ticks
from entropy_mcmc.report.html import Figure, Section, Table, notice, piece, render

EVIL = '<script>alert("1")</script>'


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 7.9), (1e-9, 3e-9), (1e6, 2e6)])
def test_ticks_are_round_inside_and_even(low, high):
    marks = ticks(low, high)
    assert 3 <= len(marks) <= 12
    assert low - 1e-12 <= marks[0] < marks[-1] <= high * (1 + 1e-9)
    steps = [b - a for a, b in itertools.pairwise(marks)]
    assert max(steps) == pytest.approx(min(steps))


@pytest.mark.parametrize(("low", "high"), [(1e-6, 10), (0.4, 0.6), (1e-12, 1e12)])
def test_log_ticks_are_inside(low, high):
    marks = log_ticks(low, high)
    assert marks
    assert all(low * 0.99 <= value <= high * 1.01 for value in marks)


def test_a_short_logarithmic_range_has_more_than_one_tick():
    assert len(log_ticks(0.55, 1.9)) > 2


def test_ticks_that_are_close_together_are_written_differently():
    words = [word for _, word in Axis("NLL", 0.11541, 0.11583).marks()]
    assert len(words) > 2
    assert len(set(words)) == len(words)


def test_a_range_of_nothing_is_still_a_range():
    for values in ([], [math.nan], [math.inf], [2.0, 2.0], [0.0]):
        low, high = spanning(values)
        assert low < high
    assert spanning([-1.0, 0.0, 4.0], log=True)[0] > 0


def test_places_outside_are_put_on_the_edge():
    axis = Axis("x", 1.0, 100.0, log=True)
    assert [axis.place(v) for v in (-5.0, 1.0, 10.0, 100.0, 1e9)] == [0, 0, 0.5, 1, 1]


def test_a_chart_is_xml_and_survives_what_is_not_a_number():
    series = [
        Series(EVIL, [0.0, 1.0, 2.0], [1.0, math.nan, math.inf], kind, slot, error=[0.1] * 3)
        for slot, kind in enumerate(("line", "points", "both"))
    ]
    text = chart(Frame(Axis(EVIL, 0.0, 2.0), Axis("y", 0.0, 2.0)), series, EVIL)
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == EVIL
    assert "<script" not in text
    assert "nan" not in text.replace(EVIL, "")


def test_points_are_where_their_numbers_are():
    frame = Frame(Axis("x", 0.0, 10.0), Axis("y", 0.0, 1.0))
    text = chart(frame, [Series("a", [0.0, 10.0], [0.0, 1.0], "points")], "words")
    circles = [e for e in ElementTree.fromstring(text).iter("circle")]
    places = [(float(c.get("cx")), float(c.get("cy"))) for c in circles]
    assert places[0] == pytest.approx((frame.left, 300 - frame.bottom), abs=0.01)
    assert places[1] == pytest.approx((460 - 14, 12), abs=0.01)


def test_thinning_keeps_the_mean_loss_and_the_last_step():
    events = [{"step": i, "loss": float(i % 7)} for i in range(1, 1001)]
    kept = thinned(events, 100)
    assert len(kept) == 100
    assert kept[-1]["step"] == 1000
    mean = sum(e["loss"] for e in kept) / 100
    assert mean == pytest.approx(sum(e["loss"] for e in events) / 1000)


def test_everything_is_escaped():
    table = Table(EVIL, [EVIL], [[EVIL, EVIL]])
    pieces = [table.html(), Figure(EVIL, EVIL, "", table).html(), notice(EVIL, EVIL), render(EVIL)]
    pieces += [Section(EVIL, EVIL, EVIL, [EVIL]).html(EVIL), piece("bullets", [EVIL])]
    assert not any("<script" in piece for piece in pieces)
    assert render(Markup("<b>")) == "<b>"


def test_numbers_for_people():
    assert number(-0.5) == "−0.5"
    assert number(float("nan")) == "–"
    assert number(-2e-9) == "−2e-09"


def test_names_tell_runs_apart(tmp_path):
    folders = [tmp_path / "a/run", tmp_path / "b/run", tmp_path / "c"]
    assert names(folders) == ["a/run", "b/run", f"{tmp_path.name}/c"]

"""One chart: axes, shaded regions, and series as lines, points, steps or bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from entropy_mcmc.report.figures.svg import Axis, label, path, tag

RIGHT, TOP, BOTTOM = 14.0, 12.0, 44.0
LETTER = 7.4  # width of a figure of the tick labels
SHAPES = ("circle", "square", "triangle", "diamond")
DASHES = (None, "7 4", "2 4", "9 4 2 4")


@dataclass(frozen=True)
class Series:
    """Numbers to draw.

    Attributes:
        name: Words for the legend and the tips.
        x: Places.
        y: Values, as many.
        kind: "line", "points", "both" or "steps" (x then has one entry more: the edges).
        slot: Which colour, dash and shape of the theme.
        error: Half-widths of error bars, or pairs (down, up).
        sizes: Radius of each point.
        hollow: Which points are drawn as an outline; none by default.
        tips: Words for each point; made from the numbers by default.
        run: Number of the run in a comparison, for the switches of the page.
        dash: Which dash; that of the slot by default.
        faint: Draw thin, for what stands behind.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "line"
    slot: int = 0
    error: Sequence[float | tuple[float, float]] | None = None
    sizes: Sequence[float] | None = None
    hollow: Sequence[bool] | None = None
    tips: Sequence[str] | None = None
    run: int | None = None
    dash: int | None = None
    faint: bool = False


@dataclass(frozen=True)
class Region:
    """A shaded part of the x axis."""

    low: float
    high: float
    class_: str = "region"


@dataclass(frozen=True)
class Frame:
    """Size of a chart in its own units, and its two axes."""

    x: Axis
    y: Axis
    width: float = 460.0
    height: float = 300.0
    bottom: float = BOTTOM

    @property
    def left(self) -> float:
        """Room for the words of the y axis."""
        return 30.0 + LETTER * max(len(words) for _, words in self.y.marks())

    def at_x(self, value: float) -> float:
        """Horizontal place of a value."""
        return self.left + self.x.place(value) * (self.width - self.left - RIGHT)

    def at_y(self, value: float) -> float:
        """Vertical place of a value."""
        floor = self.height - self.bottom
        return floor - self.y.place(value) * (floor - TOP)


@dataclass(frozen=True)
class Marks:
    """What stands beside the series: regions, upright lines, a line of reference."""

    regions: Sequence[Region] = ()
    uprights: Sequence[float] = ()
    reference: Sequence[tuple[float, float]] = ()
    extra: Sequence[str] = field(default=())


def chart(frame: Frame, series: Sequence[Series], words: str, marks: Marks | None = None) -> str:
    """The SVG of a chart; `words` say what is seen, for those who do not see it."""
    marks = marks or Marks()
    parts = [
        *(_region(frame, region) for region in marks.regions),
        *_grid(frame),
        *(_upright(frame, x) for x in marks.uprights),
        _reference(frame, marks.reference),
        *(_draw(frame, one) for one in series),
        *marks.extra,
    ]
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="img",
        aria_label=words,
        class_="chart",
    )


def _grid(frame: Frame) -> list[str]:
    floor, right = frame.height - frame.bottom, frame.width - RIGHT
    parts = []
    for value, words in frame.y.marks():
        y = frame.at_y(value)
        parts.append(tag("line", x1=frame.left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(label(frame.left - 7, y + 4, words, anchor="end"))
    for value, words in frame.x.marks(max(3, int(frame.width // 95))):
        x = frame.at_x(value)
        parts.append(tag("line", x1=x, x2=x, y1=floor, y2=floor + 4, class_="axis"))
        parts.append(label(x, floor + 18, words))
    parts.append(tag("line", x1=frame.left, x2=right, y1=floor, y2=floor, class_="axis"))
    parts.append(label((frame.left + right) / 2, frame.height - 6, frame.x.label, class_="name"))
    middle = (TOP + floor) / 2
    turned = f"rotate(-90 13 {middle:g})"
    words = label(13, middle, frame.y.label, class_="name")
    parts.append(tag("g", words, transform=turned) if frame.y.label else "")
    return parts


def _region(frame: Frame, region: Region) -> str:
    left, right = frame.at_x(region.low), frame.at_x(region.high)
    height = frame.height - frame.bottom - TOP
    return tag(
        "rect", x=left, y=TOP, width=max(0.0, right - left), height=height, class_=region.class_
    )


def _upright(frame: Frame, value: float) -> str:
    x = frame.at_x(value)
    return tag("line", x1=x, x2=x, y1=TOP, y2=frame.height - frame.bottom, class_="upright")


def _reference(frame: Frame, points: Sequence[tuple[float, float]]) -> str:
    places = [(frame.at_x(x), frame.at_y(y)) for x, y in points]
    return tag("path", d=path(places), class_="reference") if places else ""


def _draw(frame: Frame, series: Series) -> str:
    kinds = {"line": [_line], "points": [_points], "both": [_line, _points], "steps": [_steps]}
    parts = [drawer(frame, series) for drawer in kinds[series.kind]]
    classes = f"series s{series.slot % 8}" + (" faint" if series.faint else "")
    run = None if series.run is None else str(series.run)
    return tag("g", *parts, class_=classes, data_run=run, data_name=series.name)


def _places(frame: Frame, series: Series) -> list[tuple[float, float]]:
    pairs = zip(series.x, series.y, strict=False)
    return [
        (frame.at_x(x), frame.at_y(y)) for x, y in pairs if math.isfinite(x) and math.isfinite(y)
    ]


def _dash(series: Series) -> str | None:
    return DASHES[(series.slot if series.dash is None else series.dash) % len(DASHES)]


def _line(frame: Frame, series: Series) -> str:
    places = _places(frame, series)
    if not places:
        return ""
    line = tag("path", d=path(places), class_="line", stroke_dasharray=_dash(series))
    if series.kind != "line" or series.tips is None:
        return line
    targets = (
        tag("circle", cx=x, cy=y, r=6, class_="hit", data_tip=tip)
        for (x, y), tip in zip(places, series.tips, strict=False)
    )
    return line + "".join(targets)


def _steps(frame: Frame, series: Series) -> str:
    """The outline of a histogram, filled."""
    corners = [(series.x[0], 0.0)]
    for i, y in enumerate(series.y):
        corners += [(series.x[i], y), (series.x[i + 1], y)]
    corners.append((series.x[-1], 0.0))
    outline = path([(frame.at_x(x), frame.at_y(y)) for x, y in corners], close=True)
    return tag("path", d=outline, class_="area", stroke_dasharray=_dash(series))


def _points(frame: Frame, series: Series) -> str:
    tips = series.tips or [
        f"{series.name}: {frame.x.write(x)}, {frame.y.write(y)}"
        for x, y in zip(series.x, series.y, strict=True)
    ]
    parts = []
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if not (math.isfinite(x) and math.isfinite(y)):
            continue
        left = frame.at_x(x)
        if series.error is not None:
            reach = series.error[i]
            down, up = reach if isinstance(reach, tuple) else (reach, reach)
            low, high = frame.at_y(y - down), frame.at_y(y + up)
            parts.append(tag("line", x1=left, x2=left, y1=low, y2=high, class_="bar"))
        size = 4.0 if series.sizes is None else series.sizes[i]
        shape = SHAPES[series.slot % len(SHAPES)]
        hollow = series.hollow is not None and series.hollow[i]
        parts.append(point(left, frame.at_y(y), shape, tips[i], size, hollow=hollow))
    return "".join(parts)


def point(
    x: float, y: float, shape: str, tip: str, size: float = 4.0, *, hollow: bool = False
) -> str:
    """A mark with its words, which the page shows under the pointer."""
    data = {"class_": "mark hollow" if hollow else "mark", "data_tip": tip}
    if shape == "square":
        side = size * 0.88
        return tag("rect", x=x - side, y=y - side, width=2 * side, height=2 * side, **data)
    if shape == "triangle":
        corners = [(x, y - size * 1.2), (x + size * 1.1, y + size * 0.8)]
        return tag("path", d=path([*corners, (x - size * 1.1, y + size * 0.8)], close=True), **data)
    if shape == "diamond":
        reach = size * 1.25
        corners = [(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)]
        return tag("path", d=path(corners, close=True), **data)
    return tag("circle", cx=x, cy=y, r=size, **data)


def swatch(series: Series) -> str:
    """The series' look, for the legend."""
    parts = []
    if series.kind in ("line", "both"):
        parts.append(tag("path", d="M1 7L25 7", class_="line", stroke_dasharray=_dash(series)))
    if series.kind == "steps":
        box = "M2 12L2 3L24 3L24 12Z"
        parts.append(tag("path", d=box, class_="area", stroke_dasharray=_dash(series)))
    if series.kind in ("points", "both"):
        parts.append(point(13, 7, SHAPES[series.slot % len(SHAPES)], series.name))
    mark = tag("g", *parts, class_=f"series s{series.slot % 8}")
    return tag("svg", mark, viewBox="0 0 26 14", class_="swatch", aria_hidden="true")

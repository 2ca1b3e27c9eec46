"""Pieces of HTML from the templates: tables, figures with their data, sections, lists.

Templates escape everything that is not `Markup` (Jinja2's autoescape).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from entropy_mcmc.report.figures.chart import Series, swatch

ROWS_SHOWN = 400
LONG = 32  # letters
SEVERITY_NAMES = {"ok": "Good", "note": "Note", "warning": "Warning", "problem": "Problem"}


@cache
def environment() -> Environment:
    """The templates of this package, with escaping on."""
    made = Environment(
        loader=PackageLoader("entropy_mcmc.report"), autoescape=True, undefined=StrictUndefined
    )
    made.filters["swatch"] = lambda series: Markup(swatch(series))
    made.tests["long"] = is_long
    return made


@cache
def _pieces() -> Any:
    return environment().get_template("pieces.html").module


def piece(name: str, *values: object) -> Markup:
    """HTML of a macro of `templates/pieces.html`.

    >>> piece("bullets", ["<b>", Markup("<b>")])
    Markup('<ul class="bullets"><li>&lt;b&gt;</li><li><b></li></ul>')
    """
    return Markup(getattr(_pieces(), name)(*values))


def is_long(cell: object) -> bool:
    """Whether a cell may break; numbers may not."""
    return len(str(cell)) > LONG and not isinstance(cell, Markup)


@dataclass(frozen=True)
class Table:
    """A head and rows; the first cell of a row names it.

    Attributes:
        caption: Says what is in it.
        head: Names of the columns.
        rows: Cells: text, or `Markup`.
        run: For each row the number of its run in a comparison, for the page's switches.
    """

    caption: str
    head: Sequence[object]
    rows: Sequence[Sequence[object]]
    run: Sequence[int | None] = ()

    @property
    def left_out(self) -> int:
        """Rows that are not shown."""
        return max(0, len(self.rows) - ROWS_SHOWN)

    def lines(self) -> Iterator[tuple[object, list[object], int | None]]:
        """(name, cells, run) of each row that is shown."""
        for i, (first, *rest) in enumerate(self.rows[:ROWS_SHOWN]):
            yield first, rest, self.run[i] if self.run else None

    def html(self, *, shown: bool = False) -> Markup:
        """The table in a box that scrolls sideways by itself when it is too wide."""
        return piece("table", self, shown)


@dataclass(frozen=True)
class Figure:
    """A drawing with its title, one explaining sentence, a legend and the numbers behind it."""

    title: str
    caption: str
    drawing: str
    table: Table
    legend: Sequence[Series] = ()
    keys: Sequence[tuple[str, str]] = ()
    narrow: str = ""
    wide: bool = False

    def html(self) -> Markup:
        """The figure element; its numbers are behind a button that opens."""
        return piece("figure", self)


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; empty ones are left out."""

    key: str
    title: str
    lead: object
    content: Sequence[object] = field(default_factory=tuple)

    def html(self, prefix: str) -> Markup:
        """The section; `prefix` makes its id unique on the page."""
        return piece("section", self, prefix, _joined(self.content))


def render(content: object) -> Markup:
    """HTML of a figure, a table, a list of figures (side by side), or text."""
    if isinstance(content, Table):
        return content.html(shown=True)
    if isinstance(content, Figure):
        content = [content]
    if isinstance(content, list | tuple):
        figures = Markup("").join(one.html() for one in content)
        return Markup('<div class="grid-of">{}</div>').format(figures)
    return content if isinstance(content, Markup) else Markup("<p>{}</p>").format(content)


def _joined(content: Iterable[object]) -> Markup:
    return Markup("").join(map(render, content))


def details(title: str, *content: object) -> Markup:
    """Content behind a button."""
    return piece("details", title, _joined(content))


def notice(words: object, kind: str = "note") -> Markup:
    """A remark in a box: "ok", "note", "warning" or "problem"."""
    kind = kind if kind in SEVERITY_NAMES else "note"
    return piece("notice", words, kind, SEVERITY_NAMES[kind])


def bullets(items: Iterable[object]) -> Markup:
    """A list."""
    return piece("bullets", list(items))


def base64_of(data: bytes) -> str:
    """Bytes for a `data:` address."""
    return base64.b64encode(data).decode("ascii")


def slug(words: str) -> str:
    """Letters, digits and dashes only.

    >>> slug("ood: shuffled")
    'ood-shuffled'
    """
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"

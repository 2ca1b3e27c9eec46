"""Pieces of HTML: escaped text, tables, figures with their data, sections."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from entropy_mcmc.report.figures.chart import Series, swatch

ROWS_SHOWN = 400
LONG = 32  # letters


class Markup(str):
    """Text that is HTML already; everything else is escaped when it is put on the page."""


def safe(content: object) -> str:
    """Escape, unless it is `Markup`.

    >>> safe("<b>"), safe(Markup("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return content if isinstance(content, Markup) else escape(str(content))


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

    def html(self, *, shown: bool = False) -> Markup:
        """The table in a box that scrolls sideways by itself when it is too wide."""
        head = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in self.head)
        body = "".join(self._row(i) for i in range(min(len(self.rows), ROWS_SHOWN)))
        left = len(self.rows) - ROWS_SHOWN
        more = f'<p class="aside">{left} further rows are left out.</p>' if left > 0 else ""
        hidden = "" if shown else ' class="quiet"'
        return Markup(
            f'<div class="scroll" tabindex="0" role="region" aria-label="{safe(self.caption)}">'
            f"<table><caption{hidden}>{safe(self.caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
        )

    def _row(self, i: int) -> str:
        first, *rest = self.rows[i]
        cells = "".join(map(_td, rest))
        run = self.run[i] if self.run else None
        mark = "" if run is None else f' data-run="{run}"'
        return f'<tr{mark}><th scope="row">{safe(first)}</th>{cells}</tr>'


def _td(cell: object) -> str:
    """A cell; long text may break, numbers may not."""
    long = len(str(cell)) > LONG and not isinstance(cell, Markup)
    start = '<td class="long">' if long else "<td>"
    return f"{start}{safe(cell)}</td>"


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
        drawing = f'<div class="drawing">{self.drawing}</div>'
        if self.narrow:
            drawing = (
                f'<div class="drawing for-wide">{self.drawing}</div>'
                f'<div class="drawing for-narrow">{self.narrow}</div>'
            )
        size = " full" if self.wide else ""
        return Markup(
            f'<figure class="card{size}"><figcaption><h4>{safe(self.title)}</h4>'
            f"<p>{safe(self.caption)}</p></figcaption>{self._legend()}{drawing}"
            f"<details><summary>Numbers of this figure</summary>{self.table.html()}</details>"
            "</figure>"
        )

    def _legend(self) -> str:
        runs = ((s, "" if s.run is None else f' data-run="{s.run}"') for s in self.legend)
        entries = [f"<li{run}>{swatch(s)}{safe(s.name)}</li>" for s, run in runs]
        entries += [
            f'<li><span class="key {escape(class_)}"></span>{safe(words)}</li>'
            for class_, words in self.keys
        ]
        return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; empty ones are left out."""

    key: str
    title: str
    lead: object
    content: Sequence[object] = field(default_factory=tuple)

    def html(self, prefix: str) -> Markup:
        """The section; `prefix` makes its id unique on the page."""
        place = f"{prefix}-{self.key}"
        body = "".join(map(render, self.content))
        lead = f'<p class="lead">{safe(self.lead)}</p>' if self.lead else ""
        return Markup(
            f'<section id="{place}" aria-labelledby="{place}-h"><h3 id="{place}-h">'
            f"{safe(self.title)}</h3>{lead}{body}</section>"
        )


def render(piece: object) -> str:
    """HTML of a figure, a table, a list of figures (side by side), or text."""
    if isinstance(piece, Figure):
        return f'<div class="grid-of">{piece.html()}</div>'
    if isinstance(piece, Table):
        return piece.html(shown=True)
    if isinstance(piece, list | tuple):
        return f'<div class="grid-of">{"".join(one.html() for one in piece)}</div>'
    return piece if isinstance(piece, Markup) else f"<p>{safe(piece)}</p>"


def details(title: str, *content: object) -> Markup:
    """Content behind a button."""
    body = "".join(map(render, content))
    return Markup(f"<details><summary>{safe(title)}</summary>{body}</details>")


def notice(words: object, kind: str = "note") -> Markup:
    """A remark in a box: "ok", "note", "warning" or "problem"."""
    names = {"ok": "Good", "note": "Note", "warning": "Warning", "problem": "Problem"}
    kind = kind if kind in names else "note"
    return Markup(f'<p class="notice {kind}"><strong>{names[kind]}.</strong> {safe(words)}</p>')


def bullets(items: Iterable[object]) -> Markup:
    """A list."""
    return Markup(
        '<ul class="bullets">' + "".join(f"<li>{safe(item)}</li>" for item in items) + "</ul>"
    )


def image(data: bytes, alt: str, class_: str = "") -> Markup:
    """A PNG inside the page."""
    code = base64.b64encode(data).decode("ascii")
    return Markup(
        f'<img class="{escape(class_)}" alt="{escape(alt)}" src="data:image/png;base64,{code}">'
    )


def slug(words: str) -> str:
    """Letters, digits and dashes only.

    >>> slug("ood: shuffled")
    'ood-shuffled'
    """
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"

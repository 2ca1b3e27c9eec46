"""Tables for a terminal: columns of text, aligned."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: int | None = 1) -> str:
    """Rows as lines of text: the first `left` columns to the left, numbers to the right.

    Args:
        rows: Cells; every row has the same number of them, a heading is a row like any other.
        left: Columns that are words; None for all.

    >>> print(aligned([["set", "nll"], ["test", "0.5"], ["other", "12.5"]]))
    set     nll
    test    0.5
    other  12.5
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = len(widths) if left is None else left
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )

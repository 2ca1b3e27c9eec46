"""Which `data.name` means a file or folder of the user's own. Nothing here imports torch."""

from __future__ import annotations

import re

SUFFIXES = (".npz", ".csv", ".parquet")


def is_file_name(name: str) -> bool:
    """Whether a name is a path: it has a slash, or ends in .npz, .csv or .parquet.

    >>> is_file_name("houses.csv"), is_file_name("./photos"), is_file_name("mine:load")
    (True, True, False)
    """
    return "/" in name or "\\" in name or name.lower().endswith(SUFFIXES)


def is_function_name(name: str) -> bool:
    """Whether a name is `module:function`; a path with a colon, as on Windows, is none."""
    return ":" in name and not is_file_name(name)


def short_name(name: str) -> str:
    """The name as part of a folder's name: the last part of a path, without its ending.

    >>> short_name("tables/houses.csv"), short_name("mine:load"), short_name("./photos/")
    ('houses', 'mine.load', 'photos')
    """
    if not is_file_name(name):
        return name.replace(":", ".")
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    stem = re.sub(r"\.(npz|csv|parquet)$", "", last, flags=re.IGNORECASE)
    return re.sub(r"[^\w.-]", "_", stem).strip(".") or "data"


def shown_name(name: str) -> str:
    """The name for a page: the last part of a path, which may be of another machine.

    >>> shown_name("/tmp/tables/houses.csv"), shown_name("digits")
    ('houses.csv', 'digits')
    """
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1] if is_file_name(name) else name

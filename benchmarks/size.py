"""Files and lines of source by package, of this tree or of two for comparison.

python benchmarks/size.py                 # this repository
python benchmarks/size.py OLD NEW         # two clones side by side

Lines are all lines of the `.py` files, docstrings and blank lines included; "code" leaves out
docstrings, comments and blank lines.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Size = tuple[int, int, int]


def code_lines(text: str) -> int:
    r"""Lines that hold code.

    >>> code_lines('"Docstring."\n\nx = 1  # a number\n# a comment\n')
    1
    """
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED and token.type != tokenize.ENDMARKER:
            held |= set(range(token.start[0], token.end[0] + 1))
    return len(held - docstring_lines(ast.parse(text)))


def docstring_lines(tree: ast.Module) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    held: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            first = node.body[0]
            held |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return held


def package(path: Path, root: Path) -> str:
    """`samplers` of src/entropy_mcmc/samplers/…, "top level" for modules, else the folder."""
    parts = path.relative_to(root).parts
    if parts[:2] == ("src", "entropy_mcmc"):
        name = parts[2] if len(parts) > 3 else "top level"
        return "reproduction" if name == "reproduce" else name  # where it was before it moved
    return parts[0]


def sizes(root: Path) -> dict[str, Size]:
    """(files, lines, code) of every package."""
    total: dict[str, Size] = {}
    for folder in ("src", "reproduction", "tests", "benchmarks", "examples"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            files, lines, code = total.get(package(path, root), (0, 0, 0))
            total[package(path, root)] = (
                files + 1,
                lines + len(text.splitlines()),
                code + code_lines(text),
            )
    return total


OUTSIDE = ("reproduction", "tests", "benchmarks", "examples")
LIBRARY = "**library**"


def with_sum(counted: dict[str, Size]) -> dict[str, Size]:
    """The sizes and the sum of the library's packages."""
    inside = [size for name, size in counted.items() if name not in OUTSIDE]
    files, lines, code = (sum(column) for column in zip(*inside, strict=True))
    return {**counted, LIBRARY: (files, lines, code)}


def table(trees: list[dict[str, Size]]) -> str:
    """Markdown: a row for each package of any tree."""
    when = [""] if len(trees) == 1 else [" before", " after"]
    head = ["package", *(f"{what}{time}" for time in when for what in ("files", "lines", "code"))]
    names = {name for counted in trees for name in counted}
    inside = sorted(names - {*OUTSIDE, LIBRARY})
    rows = [head, ["---", *["--:"] * (len(head) - 1)]]
    for name in [*inside, LIBRARY, *OUTSIDE]:
        rows.append([name, *(f"{n:,}" for counted in trees for n in counted.get(name, (0, 0, 0)))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table([with_sum(sizes(Path(tree))) for tree in sys.argv[1:3] or [ROOT]]))

"""`emcmc report RUN [RUN …]`: one page from run folders; never runs a chain."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from entropy_mcmc.errors import ConfigError, DamagedFileError, EntropyMCMCError, check_count
from entropy_mcmc.run.trust import NOTHING, Trust, add_trust_options, trust_of

if TYPE_CHECKING:
    from entropy_mcmc.report.run_data import RunData
    from entropy_mcmc.run.runner import Run

NAME = "report.html"
ROWS = 2000  # as in `evaluation.sets`, which imports torch
LARGEST = 10_000_000


def main(argv: Sequence[str]) -> int:
    """Parse, write the page, print its path."""
    options = make_parser().parse_args(argv)
    path, lost = make_report(
        options.runs,
        output=options.output,
        flatness=options.flatness,
        rows=options.rows,
        device=options.device,
        trust=trust_of(vars(options), ["report", *argv]),
    )
    print(f"report: {path.resolve()}")
    for words in lost:
        print(f"emcmc: error: the page has no predictions: {words}", file=sys.stderr)
    return 1 if lost else 0


def make_parser() -> ArgumentParser:
    """The options of `emcmc report`."""
    parser = ArgumentParser(
        prog="emcmc report",
        description="One self-contained HTML page from run folders; several are compared.",
        epilog="example: emcmc report runs/digits-emcmc runs/digits-sgld -o comparison.html",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument("-o", "--output", help=f"page to write; {NAME} in the first run by default")
    parser.add_argument("--flatness", help="folder of `emcmc flatness -o`; RUN/flatness by default")
    parser.add_argument("--rows", type=int, default=ROWS, help="test rows at most (default: 2000)")
    parser.add_argument("--device", default="cpu", help="where to predict")
    add_trust_options(parser, action="append", metavar="NAME")
    return parser


def write_report(
    runs: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    flatness: str | Path | None = None,
    rows: int = ROWS,
    device: str = "cpu",
    trust: Trust = NOTHING,
    loaded: Run | None = None,
) -> Path:
    """Write the page of one run, or the comparison of several, and return its path.

    As `make_report`; files that are missing are said on the page alone.
    """
    return make_report(
        runs,
        output=output,
        flatness=flatness,
        rows=rows,
        device=device,
        trust=trust,
        loaded=loaded,
    )[0]


def make_report(
    runs: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    flatness: str | Path | None = None,
    rows: int = ROWS,
    device: str = "cpu",
    trust: Trust = NOTHING,
    loaded: Run | None = None,
) -> tuple[Path, list[str]]:
    """Write the page of one run, or the comparison of several.

    Args:
        runs: Run folders.
        output: File to write; `report.html` in the first run folder by default.
        flatness: Folder of `emcmc flatness`, for the first run; RUN/flatness by default.
        rows: Test rows to predict at most.
        device: Where to predict.
        trust: Functions of other modules that the runs may name.
        loaded: The first run, where it is loaded already: its predictions are not made again.

    Returns:
        The page's path, and a message for each run without predictions because files of it are
        missing or damaged: the page is then made of what is left.
    """
    from entropy_mcmc.posterior.atomic_files import atomic
    from entropy_mcmc.report.run_data import collect
    from entropy_mcmc.run.checkpoint import explained
    from entropy_mcmc.run.devices import check_device

    check_count("rows", rows)
    check_device(device)
    folders = [Path(run) for run in runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError(f"runs must be different folders, got {', '.join(map(str, folders))}")
    collected = [
        collect(
            folder,
            name,
            flatness=None if i else flatness,
            limit=rows,
            device=device,
            trust=trust,
            loaded=None if i else loaded,
        )
        for i, (folder, name) in enumerate(zip(folders, names(folders), strict=True))
    ]
    target = Path(output) if output is not None else folders[0] / NAME
    text = _page(collected)
    if len(text.encode()) > LARGEST:
        raise ConfigError(
            f"the page must be under {LARGEST:,} bytes, got {len(text.encode()):,}; "
            "report fewer runs at once"
        )
    with explained(target.parent), atomic(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target, [run.why for run in collected if run.lost]


def _page(runs: list[RunData]) -> str:
    """The page; a folder from elsewhere may hold JSON of any shape, which is one error."""
    from entropy_mcmc.report.page import page

    try:
        return page(runs)
    except EntropyMCMCError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        folders = ", ".join(str(run.folder) for run in runs)
        raise DamagedFileError(
            f"no page can be made of {folders} ({error!r:.200}): "
            "metrics.jsonl, diagnostics.json or flatness/flatness.json holds what no run writes; "
            "restore it from a copy, or remove it"
        ) from error


def names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell the runs apart.

    >>> names([Path("/a/x"), Path("/b/x")]), names([Path("/a/x"), Path("/a/y")])
    (['a/x', 'b/x'], ['x', 'y'])
    """
    whole = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, whole)) + 1):
        short = ["/".join(parts[-length:]) for parts in whole]
        if len(set(short)) == len(short):
            return short
    return ["/".join(parts) for parts in whole]

"""`emcmc reproduce`: parse, make the jobs, show the item."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from entropy_mcmc_reproduction.items import SCALES


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(argv)
    if options.page:
        from entropy_mcmc_reproduction import page

        page.write(Path(options.page), Path(options.results), options.scale)
        return 0
    if options.headline:
        from entropy_mcmc_reproduction import headline

        headline.write(Path(options.headline), Path(options.results), options.scale)
        return 0
    if options.list or not options.items:
        return _list()
    if options.workers > 1:
        _side_by_side(argv, options.workers)
    from entropy_mcmc_reproduction.running import reproduce

    reproduce(
        options.items,
        options.scale,
        results=Path(options.results),
        work=Path(options.work),
        data=options.data or os.environ.get("EMCMC_DATA"),
        show_only=options.show,
        stored_only=options.stored,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emcmc reproduce",
        description="Make tables and figures of the paper. Interrupted, the same command goes on.",
        epilog="example: emcmc reproduce synthetic --scale smoke",
    )
    parser.add_argument("items", nargs="*", help="items, or `all`; see --list")
    parser.add_argument("--scale", choices=SCALES, default="laptop", help="size (default laptop)")
    parser.add_argument("--list", action="store_true", help="list the items")
    parser.add_argument("--results", default="results", help="folder of results (default results)")
    parser.add_argument("--work", default="runs/reproduce", help="folder of weights")
    parser.add_argument("--data", help="data folder; else EMCMC_DATA")
    parser.add_argument("--workers", type=int, default=1, help="processes side by side")
    parser.add_argument("--show", action="store_true", help="show what is there, compute nothing")
    parser.add_argument(
        "--stored", action="store_true", help="measure what the store of runs has, train nothing"
    )
    parser.add_argument("--page", metavar="FILE", help="write the page of all finished items")
    parser.add_argument("--headline", metavar="FILE", help="put the main table between its marks")
    return parser


def _list() -> int:
    from entropy_mcmc_reproduction.items import MODULES, item

    width = max(map(len, MODULES))
    for name in MODULES:
        found = item(name)
        print(f"{name.ljust(width)}  {found.title} ({found.where})")
    return 0


def _side_by_side(argv: list[str], workers: int) -> None:
    """Let other processes, of one thread each, make jobs at the same time; wait for all."""
    # -P: the working directory is not searched for modules.
    start = [sys.executable, "-P", "-m", "entropy_mcmc", "reproduce"]
    command = [*start, *argv, "--workers", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen(command, env=environment) for _ in range(workers)]
    for process in started:
        process.wait()

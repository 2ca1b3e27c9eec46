"""The command `emcmc`: parse and dispatch, nothing else. torch is imported only to do the work."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import ArgumentError
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropy_mcmc import __version__, usage, usage_errors
from entropy_mcmc.errors import EntropyMCMCError
from entropy_mcmc.parsers import FOREIGN, make_parser, option_words
from entropy_mcmc.run.config import RunConfig, from_dict
from entropy_mcmc.run.config_file import NAME as CONFIG
from entropy_mcmc.run.config_file import TUNING, dump, in_run_folder, read_config
from entropy_mcmc.run.trust import (
    Trust,
    accept,
    functions,
    given_by_user,
    trust_of,
)
from entropy_mcmc.tuning.options import TuneConfig

if TYPE_CHECKING:
    from entropy_mcmc.run.runner import Run


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    answer = _answer(arguments)
    if answer is not None:
        print(answer, end="")
        return 0
    arguments = ["--help" if word == "--help-all" else word for word in arguments]
    if arguments[0] in FOREIGN:
        module = importlib.import_module(FOREIGN[arguments[0]][0])
        return guarded(lambda: module.main(arguments[1:]))
    if arguments[0] in ("sample", "tune"):
        command = _sample_command if arguments[0] == "sample" else _tune_command
        return guarded(lambda: command(arguments))
    return guarded(lambda: _read_command(arguments))


def _answer(arguments: list[str]) -> str | None:
    """Text for what needs no work: nothing at all, short help, version, completion."""
    if not arguments:
        return usage.TOP
    if arguments[0] == "--version":
        return f"emcmc {__version__}\n"
    if arguments[0] == "--completion":
        shell = arguments[1] if len(arguments) > 1 else ""
        if shell not in ("bash", "zsh", "fish"):
            sys.exit(f"emcmc: error: --completion must be bash, zsh or fish, got {shell!r}")
        import shtab

        return f"{shtab.complete(make_parser(), shell)}\n"
    return usage.short_help(arguments, option_words)


def with_config_files(arguments: list[str]) -> tuple[list[str], list[str], list[Path]]:
    """The arguments with each config file replaced by its content.

    Returns them, the same without the files that lie in run folders, and those files. Content is
    read here once and checked, because jsonargparse would import and open what a file names.
    `--config imagenet` means the config of that name that comes with the library.

    >>> with_config_files(["sample", "--config", "imagenet"])[2]
    []
    """
    every, own, received = [arguments[0]], [arguments[0]], []
    words = iter(arguments[1:])
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--config":
            every.append(word)
            own.append(word)
            continue
        path = config_path(value if equals else next(words, ""))
        content = read_config(path)
        content.pop("record", None)
        from_dict(content)  # names and values are checked before anything else sees them
        every.append(f"--config={dump(content, one_line=True)}")
        if in_run_folder(path):
            received.append(path)
        else:
            own.append(every[-1])
    return every, own, received


def config_path(name: str) -> Path:
    """The file of `--config NAME`."""
    shipped = Path(__file__).parent / "configs" / f"{name}.yaml"
    return shipped if name.isidentifier() and shipped.is_file() else Path(name)


def guarded(command: Callable[[], object]) -> int:
    """Run a command; what the library raises becomes one message and an exit code."""
    try:
        code = command()
    except EntropyMCMCError as error:
        print(f"emcmc: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        return int(getattr(stop, "exit_code", 130))
    return code if isinstance(code, int) else 0


def _sample_command(arguments: list[str]) -> None:
    """`emcmc sample`."""
    config, others = _run_config(arguments)
    _greet(config, Path(config.folder), CONFIG)
    from entropy_mcmc.run import commands

    done = commands.sample_command(config, others["more_cycles"], others["override"])
    _write_page(config, done)


def _tune_command(arguments: list[str]) -> None:
    """`emcmc tune`."""
    config, others = _run_config(arguments)
    override = others.pop("override")
    options = TuneConfig(**others)
    _greet(config, Path(options.folder(config)), TUNING)
    from entropy_mcmc.tuning.command import tune_command

    tune_command(config, options, override)


def _run_config(arguments: list[str]) -> tuple[RunConfig, dict[str, Any]]:
    """The run that is meant, and the command's other options.

    What a config of a run folder names must be allowed by the user.
    """
    every, own, received = with_config_files(arguments)
    options = _parsed(every)
    names = {entry.name for entry in fields(RunConfig)}
    config = from_dict({name: options.pop(name) for name in names})
    everything = options.pop("trust")
    if received:
        user = _parsed(own)
        allowed = functions(from_dict({name: user[name] for name in names}))
        trust = Trust(frozenset(allowed.values()), everything, tuple(arguments))
        accept(config, trust, received[-1])
    return config, options


def _greet(config: RunConfig, folder: Path, name: str) -> None:
    """Say at once what will be done, or goes on if the folder has the file: torch takes seconds."""
    first = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"
    if config.output.progress and first:
        what = f"{config.method} on {config.data.name}"
        begun = "goes on" if (folder / name).exists() else "starts"
        print(f"{what}: {begun} in {folder}", file=sys.stderr)


def _read_command(arguments: list[str]) -> None:
    """The commands that read a run folder."""
    options = _parsed(arguments)
    options["trust"] = trust_of(options, arguments)
    for part in ("data", "model", "loss"):
        del options[part]
    if arguments[0] == "flatness":
        from entropy_mcmc.run.flatness_command import flatness_command

        flatness_command(options.pop("runs"), **options)
        return
    from entropy_mcmc.run import commands

    if arguments[0] == "evaluate":
        commands.evaluate_command(**options)
    else:
        commands.predict_command(**options)


def _parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of a command as nested tables."""
    try:
        parsed = make_parser().parse_args(arguments)
    except ArgumentError as error:
        words = usage_errors.explained(str(error), arguments, option_words(arguments[0]))
        print(f"emcmc: error: {words}", file=sys.stderr)
        raise SystemExit(2) from None
    options: dict[str, Any] = parsed[parsed.command].as_dict()
    for name in ("config", "__default_config__"):
        options.pop(name, None)
    return options


def _write_page(config: RunConfig, loaded: Run | None) -> None:
    """The run's page; that it cannot be made is said, and does not spoil the run."""
    from entropy_mcmc.posterior import ranks
    from entropy_mcmc.report.command import write_report

    if not (ranks.is_main() and config.output.report):
        return
    try:
        trust = given_by_user(config, silent=True)
        print(f"report: {write_report([config.folder], trust=trust, loaded=loaded)}")
    except EntropyMCMCError as error:
        print(f"emcmc: the run is done, but its page is not: {error}", file=sys.stderr)

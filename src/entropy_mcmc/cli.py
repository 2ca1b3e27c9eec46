"""The command `emcmc`: parse and dispatch, nothing else. torch is imported only to do the work."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import (  # type: ignore[attr-defined]
    ActionConfigFile,
    ArgumentParser,
)

from entropy_mcmc import __version__, usage
from entropy_mcmc.errors import EntropyMCMCError
from entropy_mcmc.run.config import RunConfig, from_dict, leaves
from entropy_mcmc.run.config_file import dump, in_run_folder, parse, read_config
from entropy_mcmc.run.trust import (
    Trust,
    accept,
    add_trust_options,
    functions,
    given_by_user,
    trust_of,
)

if TYPE_CHECKING:
    from entropy_mcmc.run.runner import Run

# Commands with a parser of their own: the module whose `main(argv) -> int` runs them.
FOREIGN = {
    "report": ("entropy_mcmc.report.command", "tables, figures and report.html of a run"),
    "reproduce": ("entropy_mcmc.reproduce", "tables and figures of the paper; needs a clone"),
}


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
    if arguments[0] == "sample":
        return guarded(lambda: _sample_command(arguments))
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


def option_words(command: str) -> dict[str, str]:
    """Help text of each flag of a command, from its parser."""
    parsers = {"sample": _sample, "evaluate": _evaluate, "predict": _predict, "flatness": _flatness}
    if command not in parsers:
        return {}
    return {flag: a.help or "" for a in parsers[command]()._actions for flag in a.option_strings}


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


def make_parser() -> Any:
    """The parser of all commands."""
    parser = ArgumentParser(
        prog="emcmc",
        allow_abbrev=False,
        description="Sample neural networks from flat basins.",
    )
    commands = parser.add_subcommands(required=True, dest="command")
    commands.add_subcommand("sample", _sample(), help="sample a posterior, or go on with a run")
    commands.add_subcommand("evaluate", _evaluate(), help="metrics of a run, also on other data")
    commands.add_subcommand("predict", _predict(), help="predict the rows of a file")
    commands.add_subcommand("flatness", _flatness(), help="how flat the loss is around samples")
    for name, (_, text) in FOREIGN.items():
        commands.add_subcommand(name, ArgumentParser(), help=text)
    return parser


def _sample() -> Any:
    parser = ArgumentParser(
        allow_abbrev=False,
        usage="emcmc sample [options]",
        description="Sample a posterior. Without options: the embedded digits, in about a minute. "
        "Killed at any moment, the same command goes on.",
    )
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML file of options, or imagenet"
    )
    for name, kind, default, text in leaves():
        # jsonargparse would import the classes that values of type Any name.
        kind = table if name.endswith(".options") else kind
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    parser.add_argument(
        "--more-cycles", type=int | None, default=None, help="extend a finished run by this many"
    )
    parser.add_argument(
        "--override", action="store_true", help="go on with other versions or threads"
    )
    parser.add_argument(
        "--trust", action="store_true", help="import what a config in a run folder names"
    )
    return parser


def table(value: Any) -> dict[str, Any]:
    """Options of a model or data set: a table as it is, or as YAML.

    >>> table("{limit: 100}")
    {'limit': 100}
    """
    content = parse(value) if isinstance(value, str) else value
    if not isinstance(content, dict):
        raise ValueError(f"must be a table such as {{limit: 100}}, got {value!r}")
    return content


def _evaluate() -> Any:
    parser = ArgumentParser(
        allow_abbrev=False, description="Metrics on test, out-of-distribution and corrupted data."
    )
    parser.add_argument("run", type=str, help="run folder")
    parser.add_argument(
        "--corruptions", type=list[str], default=["all"], help="types, [all] or [none]"
    )
    parser.add_argument("--device", type=str, default="cpu", help="where to predict")
    add_trust_options(parser, type=str | None)
    return parser


def _predict() -> Any:
    parser = ArgumentParser(
        allow_abbrev=False,
        description="Class probabilities, entropy and mutual information; or mean and std.",
    )
    parser.add_argument("run", type=str, help="run folder")
    parser.add_argument("input", type=str, help=".npz (array x) or .csv (a row per input)")
    parser.add_argument("-o", "--output", type=str, required=True, help=".npz or .csv to write")
    parser.add_argument("--batch_size", type=int, default=256, help="rows at a time")
    parser.add_argument("--device", type=str, default="cpu", help="where to predict")
    add_trust_options(parser, type=str | None)
    return parser


def _flatness() -> Any:
    parser = ArgumentParser(
        allow_abbrev=False,
        description="Fisher, Hessian, sharpness, interpolation and local learning coefficient "
        "of the last θ and guide of runs.",
    )
    parser.add_argument("runs", type=str, nargs="+", help="run folders of one model and data set")
    parser.add_argument("--subset", type=int, default=500, help="rows for all but the Fisher")
    parser.add_argument("-o", "--output", type=str | None, default=None, help="folder to write")
    parser.add_argument(
        "--surface", action="store_true", help="also draw the loss on a plane through three samples"
    )
    parser.add_argument(
        "--learning_steps",
        type=int,
        default=800,
        help="steps per chain of the local learning coefficient; 0 leaves it out",
    )
    parser.add_argument(
        "--localisation", type=float, default=200.0, help="of the local learning coefficient"
    )
    parser.add_argument("--device", type=str, default="cpu", help="where to compute")
    add_trust_options(parser, type=str | None)
    return parser


def _sample_command(arguments: list[str]) -> None:
    """`emcmc sample`: what a config of a run folder names must be allowed by the user."""
    every, own, received = with_config_files(arguments)
    options = _parsed(every)
    more, override, everything = (options.pop(n) for n in ("more_cycles", "override", "trust"))
    config = from_dict(options)
    if received:
        user = _parsed(own)
        names = functions(from_dict({n: v for n, v in user.items() if n in options}))
        trust = Trust(frozenset(names.values()), everything, tuple(arguments))
        accept(config, trust, received[-1])
    from entropy_mcmc.run import commands

    _write_page(config, commands.sample_command(config, more, override))


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
    parsed = make_parser().parse_args(arguments)
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

"""The options of `emcmc`, command by command. Nothing here imports torch."""

from __future__ import annotations

from typing import Any

from jsonargparse import (  # type: ignore[attr-defined]
    ActionConfigFile,
    ArgumentParser,
)

from entropy_mcmc.run.config import RunConfig, leaves
from entropy_mcmc.run.config_file import parse
from entropy_mcmc.run.trust import add_trust_options
from entropy_mcmc.tuning.options import TuneConfig

# Commands with a parser of their own: the module whose `main(argv) -> int` runs them.
FOREIGN = {
    "report": ("entropy_mcmc.report.command", "tables, figures and report.html of a run"),
    "reproduce": ("entropy_mcmc.reproduce", "tables and figures of the paper; needs a clone"),
}


def make_parser() -> Any:
    """The parser of all commands."""
    parser = ArgumentParser(
        prog="emcmc",
        allow_abbrev=False,
        exit_on_error=False,
        description="Many networks from one training run, with uncertainty that is checked.",
    )
    commands = parser.add_subcommands(required=True, dest="command")
    for name, (make, text) in PARSERS.items():
        commands.add_subcommand(name, make(), help=text)
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
    _add_run_options(parser)
    parser.add_argument(
        "--more-cycles", type=int | None, default=None, help="extend a finished run by this many"
    )
    return parser


def _tune() -> Any:
    parser = ArgumentParser(
        allow_abbrev=False,
        usage="emcmc tune [options]",
        description="Choose lr, prior variance, T and the like by the NLL of rows held out of the "
        "training data. Killed at any moment, the same command goes on.",
    )
    _add_options(parser, TuneConfig)
    _add_run_options(parser)
    return parser


def _add_run_options(parser: Any) -> None:
    """Options of a run, and what its user allows."""
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML file of options, or imagenet"
    )
    _add_options(parser, RunConfig)
    parser.add_argument(
        "--override", action="store_true", help="go on with other versions or threads"
    )
    parser.add_argument(
        "--trust", action="store_true", help="import what a config in a run folder names"
    )


def _add_options(parser: Any, config: type) -> None:
    for name, kind, default, text in leaves(config):
        # jsonargparse would import the classes that values of type Any name.
        kind = table if name.endswith(("options", "ranges")) else kind
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)


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
        "of the last θ (of replicas the last one) and guide of runs.",
    )
    parser.add_argument("runs", type=str, nargs="+", help="run folders of one model and data set")
    parser.add_argument(
        "--subset",
        type=int,
        default=500,
        help="rows for Hessian, sharpness, lines and surface; loss, Fisher and learning "
        "coefficient use all",
    )
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
        "--learning_rows",
        type=int,
        default=256,
        help="training rows of each of these steps, its batch_size; too few heat the chains",
    )
    parser.add_argument(
        "--localisation",
        type=float,
        default=200.0,
        help="gamma of the local learning coefficient, a convention: values compare at one gamma "
        "only; the table says how they move with it",
    )
    parser.add_argument("--device", type=str, default="cpu", help="where to compute")
    add_trust_options(parser, type=str | None)
    return parser


# Commands with a parser here: what makes it, and what the command does.
PARSERS = {
    "sample": (_sample, "sample a posterior, or go on with a run"),
    "tune": (_tune, "choose lr, prior variance, T and the like"),
    "evaluate": (_evaluate, "metrics of a run, also on other data"),
    "predict": (_predict, "predict the rows of a file"),
    "flatness": (_flatness, "how flat the loss is around samples"),
}


def option_words(command: str) -> dict[str, str]:
    """Help text of each flag of a command, from its parser."""
    if command not in PARSERS:
        return {}
    return {flag: a.help or "" for a in PARSERS[command][0]()._actions for flag in a.option_strings}

"""Short help of `emcmc`: plain text, answered without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

WIDTH = 100
COLUMN = 31  # where the words of an option begin

TOP = """\
usage: emcmc COMMAND …

Many networks from one training run, with uncertainty that is checked.

  sample      sample a posterior, or go on with a run
  tune        choose lr, prior variance, T and the like for it
  evaluate    metrics of a run, also on other and corrupted data
  predict     predict the rows of a file
  flatness    how flat the loss is around samples
  report      one page with everything about one or several runs
  reproduce   tables and figures of the paper; needs a clone of the repository

example: emcmc sample                     (embedded data, about a minute)
help:    emcmc COMMAND --help             short, with an example
         emcmc COMMAND --help-all         every option with its default
also:    emcmc --version, emcmc --completion bash | zsh | fish
"""


class Summary(NamedTuple):
    """What the short help of a command shows: the words of its options come from its parser."""

    usage: str
    about: str
    options: tuple[tuple[str, str], ...]  # flag, and what stands for its value
    example: str


COMMANDS = {
    "sample": Summary(
        "emcmc sample [options]",
        "Sample a posterior. Without options: embedded digits, beside one SGD network of the same "
        "budget. Killed at any moment, the same command goes on and gives the same samples.",
        (
            ("--data.name", "NAME"),
            ("--model.name", "NAME"),
            ("--method", "NAME"),
            ("--replicas", "Y"),
            ("--schedule.epochs", "N"),
            ("--sampler.lr", "X"),
            ("--sampler.temperature", "T"),
            ("--sampler.prior_variance", "V"),
            ("--run_dir", "FOLDER"),
            ("--config", "FILE"),
            ("--more-cycles", "K"),
        ),
        "emcmc sample --data.name cifar10 --model.name resnet18 --schedule.epochs 200",
    ),
    "tune": Summary(
        "emcmc tune [options]",
        "Choose lr, prior variance, T and the like by the NLL of rows held out of the training "
        "data, for any method, and your own model, data and loss. It takes all options of emcmc "
        "sample; what you give is kept, what you leave open is chosen. Prints a table; the "
        "folder has a picture and chosen.yaml for emcmc sample --config. Killed at any moment, "
        "the same command goes on and finds the same.",
        (
            ("--trials", "N"),
            ("--workers", "N"),
            ("--validation", "PART"),
            ("--search", "[NAMES]"),
            ("--ranges", "TABLE"),
            ("--tune_dir", "FOLDER"),
            ("--method", "NAME"),
            ("--data.name", "NAME"),
            ("--model.name", "NAME"),
            ("--schedule.epochs", "N"),
        ),
        "emcmc tune --data.name mine:load --model.name mine:network --schedule.epochs 48",
    ),
    "evaluate": Summary(
        "emcmc evaluate RUN [options]",
        "Accuracy, NLL and calibration on the test set, detection of out-of-distribution data, and "
        "the same on corrupted images. Prints a table; all values go to RUN/metrics.jsonl.",
        (("--corruptions", "[TYPES]"), ("--device", "NAME"), ("--trust", "")),
        "emcmc evaluate runs/digits-emcmc --corruptions [none]",
    ),
    "predict": Summary(
        "emcmc predict RUN INPUT -o OUTPUT [options]",
        "Class probabilities, entropy and mutual information; for regression mean and standard "
        "deviation. INPUT and OUTPUT are .npz or .csv files.",
        (("--batch_size", "N"), ("--device", "NAME"), ("--trust", "")),
        "emcmc predict runs/digits-emcmc new.npz -o probabilities.csv",
    ),
    "flatness": Summary(
        "emcmc flatness RUN [RUN …] [options]",
        "Fisher information, Hessian, sharpness, learning coefficient and interpolation at the "
        "last θ (of replicas the last one) and guide of each run, in one table and figures.",
        (
            ("--subset", "N"),
            ("--learning_steps", "N"),
            ("--surface", ""),
            ("--output", "FOLDER"),
            ("--trust", ""),
        ),
        "emcmc flatness runs/digits-emcmc runs/digits-sgld",
    ),
}


def short_help(
    arguments: Sequence[str], words_of: Callable[[str], Mapping[str, str]]
) -> str | None:
    """The text for `--help`; None if these arguments do not ask for it.

    `words_of(command)` gives the help text of each flag of a command.

    >>> print(short_help(["--help"], dict).splitlines()[0])
    usage: emcmc COMMAND …
    """
    if not any(word in ("-h", "--help") for word in arguments):
        return None
    if arguments[0] in ("-h", "--help"):
        return TOP
    command = arguments[0]
    return _text(command, words_of(command)) if command in COMMANDS else None


def _text(command: str, words: Mapping[str, str]) -> str:
    summary = COMMANDS[command]
    lines = [f"usage: {summary.usage}", "", *wrap(summary.about, WIDTH), ""]
    for flag, value in summary.options:
        first = f"  {flag} {value}".ljust(COLUMN)
        lines += wrap(words[flag], WIDTH, initial_indent=first, subsequent_indent=" " * COLUMN)
    lines += ["", f"example: {summary.example}"]
    lines += [f"every option with its default: emcmc {command} --help-all", ""]
    return "\n".join(lines)

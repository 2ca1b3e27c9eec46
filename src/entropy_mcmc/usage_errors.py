"""Errors of the command line in our words, with the likely spelling. Nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Iterable

from entropy_mcmc.errors import suggestion

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list of names such as [mnist, kmnist]",
    "dict": "a table such as {limit: 100}",
    "NoneType": "null",
}
# What other programs call our options.
SYNONYMS = {
    "learning_rate": "--sampler.lr",
    "eta_max": "--sampler.lr",
    "T": "--sampler.temperature",
    "wd": "--sampler.weight_decay",
    "dataset": "--data.name",
    "data": "--data.name",
    "model": "--model.name",
    "arch": "--model.name",
    "device": "--compute.accelerator",
    "output_dir": "--run_dir",
    "out": "--run_dir",
}
_KEY = re.compile(r'Parser key "([\w.]+)"')
_KIND = re.compile(r"Expected a (?:<class '(\w+)'>|(\w+))")
_VALUE = re.compile(r"(?:Given value|Got value): (.*)\Z", re.DOTALL)
_TABLE = re.compile(r"argument --([\w.]+): invalid table value: (.*)\Z", re.DOTALL)
_COMMAND = re.compile(r"argument command: invalid choice: '(.*?)'")
_REQUIRED = re.compile(r"the following arguments are required: (.*)\Z")
_NO_VALUE = re.compile(r"argument --([\w.]+).*: expected one argument")


def explained(message: str, arguments: list[str], options: Iterable[str]) -> str:
    """What is wrong with some arguments, from the parser's message.

    Args:
        message: The parser's.
        arguments: The command and what follows it.
        options: Flags of that command, such as "--sampler.lr".

    >>> explained("argument --seed: expected one argument", ["sample"], [])
    '--seed needs a value, got none'
    """
    for pattern, words in _WORDS:
        match = pattern.search(message)
        if match:
            return words(match, message, arguments, list(options))
    return message


def _type(match: re.Match[str], message: str, arguments: list[str], options: list[str]) -> str:
    name = match[1]
    kinds = dict.fromkeys(first or second for first, second in _KIND.findall(message))
    value = _VALUE.search(message)
    allowed = " or ".join(KINDS.get(kind, kind) for kind in kinds) or "of another type"
    given = f", got {name}={value[1].strip()!r}" if value else ""
    return f"{name} must be {allowed}{given}"


def _table(match: re.Match[str], message: str, arguments: list[str], options: list[str]) -> str:
    return f"{match[1]} must be {KINDS['dict']}, got {match[2].strip()}"


def _command(match: re.Match[str], message: str, arguments: list[str], options: list[str]) -> str:
    commands = re.findall(r"'([\w-]+)'", message.partition("choose from")[2])
    return (
        f"emcmc has no command {match[1]!r}{suggestion(match[1], commands)}; it has "
        f"{', '.join(commands)}"
    )


def _required(match: re.Match[str], message: str, arguments: list[str], options: list[str]) -> str:
    command = arguments[0] if arguments else ""
    flags = {option.removeprefix("--") for option in options}
    names = [part.strip().removeprefix(f"{command}.") for part in match[1].split(",")]
    words = [f"--{name}" if name in flags else name.upper() for name in names]
    return f"emcmc {command} needs {' and '.join(words)}; see emcmc {command} --help"


def _no_value(match: re.Match[str], message: str, arguments: list[str], options: list[str]) -> str:
    return f"--{match[1]} needs a value, got none"


def _unknown(match: re.Match[str], message: str, arguments: list[str], options: list[str]) -> str:
    command = arguments[0] if arguments else ""
    word = match[1].split()[0].partition("=")[0]
    if not word.startswith("-"):
        return f"emcmc {command} does not know what to do with {word!r}; see emcmc {command} --help"
    return (
        f"emcmc {command} has no option {word}{likely_option(word, options)}; emcmc {command} "
        "--help-all lists them"
    )


def likely_option(word: str, options: list[str]) -> str:
    """The question after the most similar option: --lr is --sampler.lr.

    >>> likely_option("--lr", ["--seed", "--sampler.lr"])
    " (did you mean '--sampler.lr'?)"
    """
    last = word.removeprefix("--").rpartition(".")[2].replace("-", "_")
    if SYNONYMS.get(last) in options:
        return f" (did you mean '{SYNONYMS[last]}'?)"
    same = [option for option in options if option.removeprefix("--").rpartition(".")[2] == last]
    if same:
        return suggestion(same[0], same)
    whole = suggestion(word, options)
    if whole:
        return whole
    ends = {option.rpartition(".")[2]: option for option in reversed(options)}
    near = re.search(r"'(.*)'", suggestion(last, ends))
    return suggestion(ends[near[1]], options) if near else ""


_WORDS = (
    (_KEY, _type),
    (_TABLE, _table),
    (_COMMAND, _command),
    (_REQUIRED, _required),
    (_NO_VALUE, _no_value),
    (re.compile(r"unrecognized arguments: (.*)\Z", re.DOTALL), _unknown),
)

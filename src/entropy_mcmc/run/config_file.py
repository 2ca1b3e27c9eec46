"""Config files: YAML that is only data, read within limits, and where such a file may lie.

A file inside a run folder came with that folder; it is not the user's word (see `trust`).
Nothing here imports torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from entropy_mcmc.errors import DamagedFileError, MissingFileError

NAME = "config.yaml"
TUNING = "tune.yaml"  # what a search was asked for, in its folder
LARGEST = 64 * 1024  # bytes; a config has about 3,000
DEEPEST = 20  # tables inside tables
# Any of these beside or above a file makes the place a run folder; so does a recorded config.
MARKS = ("samples/manifest.json", "checkpoint/chain-0", TUNING)
# The key by which jsonargparse imports a class.
FORBIDDEN = "class_path"


def read_config(path: Path) -> dict[str, Any]:
    """The plain content of a config file: tables, lists, text and numbers; nothing is run."""
    try:
        content = parse(_text(path))
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} is not there; check the path of the config") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is no config ({_first_line(error)})") from error
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} is no config (it must be a table of options)")
    return _in_todays_words(content)


def _in_todays_words(content: dict[str, Any]) -> dict[str, Any]:
    """A run of an earlier version with the options that it did not have, as it meant them."""
    schedule = content.get("schedule")
    if "record" not in content or content.get("method") != "emcmc":
        return content
    if isinstance(schedule, dict) and "coupled" not in schedule:
        return {**content, "schedule": {**schedule, "coupled": "always"}}
    return content


def in_run_folder(path: Path) -> bool:
    """Whether a file lies in a run folder, as it is named or after its links are followed."""
    places = {folder for name in (path.absolute(), path.resolve()) for folder in name.parents}
    return any(is_run_folder(folder) for folder in places)


def is_run_folder(folder: Path) -> bool:
    """Whether a folder holds what only a run writes."""
    return any((folder / mark).exists() for mark in MARKS) or _has_record(folder / NAME)


def _has_record(path: Path) -> bool:
    try:
        return path.is_file() and "record" in read_config(path)
    except (DamagedFileError, MissingFileError):
        return False  # no command opens such a folder as a run


def _text(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise OSError("it is no regular file")
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise OSError(f"it must have at most {LARGEST} bytes")
    return raw.decode("utf-8")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values only; 1e-3 is a number, as on the command line, and a date is text."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """The same rule for writing: the text "1e-3" gets its quotes."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if not tag.endswith(":timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def parse(text: str) -> Any:
    """Plain values from YAML; ValueError for whatever else a text may hold."""
    try:
        _check_events(text)
        content = yaml.load(text, Loader=_Loader)  # a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    _check_plain(content)
    return content


def _check_events(text: str) -> None:
    """Refuse, before anything is built, what would take very long or very much memory."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("a config has no aliases")  # a few could stand for gigabytes
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"tables are nested more than {DEEPEST} times")


def dump(content: dict[str, Any], *, one_line: bool = False) -> str:
    """YAML that `parse` reads back."""
    style: dict[str, Any] = {"default_flow_style": True, "width": LARGEST} if one_line else {}
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)
    return text


def _check_plain(value: Any) -> None:
    if value is not None and not isinstance(value, str | bool | int | float | list | dict):
        raise ValueError(f"{type(value).__name__} is no value of a config")
    if isinstance(value, dict):
        _check_keys(value)
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            _check_plain(part)


def _check_keys(table: dict[Any, Any]) -> None:
    for key in table:
        if not isinstance(key, str):
            raise ValueError(f"names must be text, got {key!r}")
        if key == FORBIDDEN:
            raise ValueError(f"{key} would import a class, which a config may not")


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

"""One base class for every error of the library, and the small checks that raise them.

Every message names the value that was given, what is allowed, and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real


class EntropyMCMCError(Exception):
    """Base class: `except EntropyMCMCError` catches whatever the library raises on purpose."""


class ConfigError(EntropyMCMCError, ValueError):
    """A value that can never work: a negative learning rate, an unknown name."""


class UntrustedError(ConfigError):
    """Code that may not be imported: the message says why, and how to allow it if one may."""


class StateError(EntropyMCMCError, RuntimeError):
    """A call at the wrong moment: `step` inside `guide()`, a schedule past its end."""


class NonFiniteError(EntropyMCMCError, FloatingPointError):
    """A gradient or a parameter became NaN or infinite."""


class DamagedFileError(EntropyMCMCError, OSError):
    """A file is truncated, altered or not what its name promises."""


class MissingFileError(EntropyMCMCError, FileNotFoundError):
    """A file that was asked for is not there; the message says what to put where."""


def check_number(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a float if it is a finite real number, else raise `ConfigError`.

    >>> check_number("lr", 0.1)
    0.1
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(
            _message(name, value, "a Python number", remedy or f"pass {name} as int or float")
        )
    number = float(value)
    if not math.isfinite(number):
        raise ConfigError(_message(name, value, "finite", remedy))
    return number


def check_positive(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a float if it is greater than zero.

    >>> check_positive("eta", -1.0)
    Traceback (most recent call last):
        ...
    entropy_mcmc.errors.ConfigError: eta must be greater than 0, got eta=-1.0
    """
    number = check_number(name, value, remedy=remedy)
    if number <= 0:
        raise ConfigError(_message(name, value, "greater than 0", remedy))
    return number


def check_not_negative(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a float if it is at least zero."""
    number = check_number(name, value, remedy=remedy)
    if number < 0:
        raise ConfigError(_message(name, value, "at least 0", remedy))
    return number


def check_fraction(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a float if 0 ≤ value < 1."""
    number = check_number(name, value, remedy=remedy)
    if not 0 <= number < 1:
        raise ConfigError(_message(name, value, "at least 0 and less than 1", remedy))
    return number


def check_count(name: str, value: object, *, least: int = 1, remedy: str = "") -> int:
    """Return `value` as an int if it is a whole number of at least `least`."""
    number = check_number(name, value, remedy=remedy)
    if number != int(number) or number < least:
        raise ConfigError(_message(name, value, f"a whole number of at least {least}", remedy))
    return int(number)


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless `value` is one of `choices`.

    >>> check_choice("norm", "ln", ("bn", "frn"))
    Traceback (most recent call last):
        ...
    entropy_mcmc.errors.ConfigError: norm must be one of 'bn', 'frn', got norm='ln'
    """
    if not any(value is choice or value == choice for choice in choices):
        allowed = ", ".join(repr(choice) for choice in choices)
        likely = suggestion(value, choices)
        raise ConfigError(_message(name, value, f"one of {allowed}", "") + likely)


def suggestion(value: object, choices: Iterable[object]) -> str:
    """A question after the most similar of some names, or nothing where none is similar.

    >>> suggestion("sgdl", ("emcmc", "sgld"))
    " (did you mean 'sgld'?)"
    """
    names = [choice for choice in choices if isinstance(choice, str)]
    folded = {name.lower().replace("_", "-"): name for name in reversed(names)}
    asked = str(value).lower().replace("_", "-")
    # Swapped letters first: for difflib "sgdl" is nearer to "sgd" than to "sgld".
    close = [name for name in folded if sorted(name) == sorted(asked)][:1]
    close = close or get_close_matches(asked, folded, n=1, cutoff=0.7)
    close = close or [name for name in folded if len(asked) > 2 and name.startswith(asked)][:1]
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""


def _message(name: str, value: object, allowed: str, remedy: str) -> str:
    tail = f"; {remedy}" if remedy else ""
    return f"{name} must be {allowed}, got {name}={value!r}{tail}"

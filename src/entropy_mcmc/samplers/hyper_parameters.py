"""Hyper-parameters of a sampler: its constructor declares them, this reads the declaration.

A name, a type and a default stand in the signature, a range beside the type
(`lr: LearningRate`, or `Annotated[float, positive()]`), a help text in the docstring's `Args`.
Nothing here imports torch.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from entropy_mcmc import errors
from entropy_mcmc.units import NUM_DATA_REMEDY

# Arguments of every constructor that are no hyper-parameters of a rule.
PLUMBING = ("self", "params", "seed", "fused", "check_every")


@dataclass(frozen=True)
class Range:
    """What values are allowed; `check(name, value)` raises for all others.

    Of `whole` numbers 2.0 is taken, as 2.
    """

    check: Callable[[str, Any], object]
    whole: bool = False


def positive(remedy: str = "") -> Range:
    """Greater than 0."""
    return Range(partial(errors.check_positive, remedy=remedy))


def not_negative(remedy: str = "") -> Range:
    """Range: at least 0."""
    return Range(partial(errors.check_not_negative, remedy=remedy))


def fraction() -> Range:
    """Range: at least 0 and less than 1."""
    return Range(errors.check_fraction)


def at_most(limit: float, range: Range) -> Range:
    """Range: in `range`, and at most `limit`."""

    def check(name: str, value: Any) -> None:
        range.check(name, value)
        if value > limit:
            raise errors.ConfigError(f"{name} must be at most {limit:g}, got {name}={value!r}")

    return Range(check)


def count(least: int = 1) -> Range:
    """A whole number of at least `least`."""
    return Range(partial(errors.check_count, least=least), whole=True)


def one_of(*choices: object) -> Range:
    """One of a few values."""
    return Range(lambda name, value: errors.check_choice(name, value, choices))


LearningRate = Annotated[float, not_negative("a typical value for the mean loss is 0.01 to 0.5")]
NumData = Annotated[int | None, positive(NUM_DATA_REMEDY)]
Temperature = Annotated[float, not_negative("0 switches the noise off")]
WeightDecay = Annotated[float, not_negative()]
PriorVariance = Annotated[float | None, positive()]
Momentum = Annotated[float, fraction()]
Integrator = Annotated[str, one_of("euler", "lm", "baoab")]
ETA_REMEDY = (
    'η is the variance of θ_a around θ at T = 1; pass eta="auto", or eta=horizon·lr/num_data, '
    "where horizon is the number of steps that the guide averages over"
)
Eta = Annotated[float | str | None, positive(ETA_REMEDY)]


@dataclass(frozen=True)
class HyperParameter:
    """One hyper-parameter as declared; `default` is `inspect.Parameter.empty` if it has none."""

    name: str
    kind: Any
    default: Any
    range: Range | None
    help: str

    def check(self, value: Any) -> Any:
        """The value, a count as an int; raises `ConfigError` unless it is allowed."""
        if self.range is None:
            return value
        self.range.check(self.name, value)
        return int(value) if self.range.whole else value


def hyper_parameters(sampler: type) -> Mapping[str, HyperParameter]:
    """Hyper-parameters that the constructor of a sampler class declares, in its order."""
    key: Any = sampler  # mypy takes a class with a metaclass's hash for unhashable
    return _read(key)


@cache
def _read(sampler: Any) -> Mapping[str, HyperParameter]:
    owner = next(cls for cls in sampler.__mro__ if "__init__" in vars(cls))
    hints = get_type_hints(owner.__init__, include_extras=True)
    texts = argument_texts(owner.__doc__ or "")
    arguments = inspect.signature(owner).parameters
    return {
        name: _declared(name, hints.get(name, Any), argument.default, texts.get(name, ""))
        for name, argument in arguments.items()
        if name not in PLUMBING
    }


def _declared(name: str, hint: Any, default: Any, text: str) -> HyperParameter:
    kind, ranges = hint, []
    if get_origin(hint) is Annotated:
        kind, *extra = get_args(hint)
        ranges = [entry for entry in extra if isinstance(entry, Range)]
    return HyperParameter(name, kind, default, ranges[0] if ranges else None, text)


def argument_texts(docstring: str) -> dict[str, str]:
    r"""Text of each argument in the `Args` of a docstring, as one line.

    >>> argument_texts("A.\n\n    Args:\n        lr: a rate\n            of two lines.\n")
    {'lr': 'a rate of two lines.'}
    """
    _, _, section = inspect.cleandoc(docstring).partition("\nArgs:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            name = start[1]
            texts[name] = start[2]
        elif name and line.startswith(" " * 8):
            texts[name] += " " + line.strip()
        else:
            break
    return texts


def signature_only(source: str, name: str) -> type:
    """The class `name` of a module's source, with its docstring and constructor's signature alone.

    So the hyper-parameters of a sampler can be listed without importing torch.
    """
    (node,) = (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    kept: list[ast.stmt] = [ast.Expr(ast.Constant(ast.get_docstring(node, clean=False) or ""))]
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            method.body = [ast.Pass()]
            kept.append(method)
    node.bases, node.decorator_list, node.body = [], [], kept
    namespace: dict[str, Any] = {**globals(), "Params": Any}
    module = ast.fix_missing_locations(ast.Module([node], []))
    exec(compile(module, f"<{name}>", "exec"), namespace)
    made: type = namespace[name]
    return made

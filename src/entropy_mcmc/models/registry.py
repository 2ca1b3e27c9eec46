"""Models by name, for configuration files and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from entropy_mcmc.errors import ConfigError, suggestion
from entropy_mcmc.models.resnet import resnet8, resnet18, resnet20, resnet50
from entropy_mcmc.models.small import MLP, LogisticRegression, SmallCNN

BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "logistic": LogisticRegression,
    "mlp": MLP,
    "cnn": SmallCNN,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet50": resnet50,
}


def names() -> tuple[str, ...]:
    """The names that `build` knows.

    >>> names()
    ('logistic', 'mlp', 'cnn', 'resnet8', 'resnet18', 'resnet20', 'resnet50')
    """
    return tuple(BUILDERS)


def options(name: str) -> dict[str, Any]:
    """The options of a model and their defaults.

    >>> options("resnet18")
    {'outputs': 10, 'in_channels': 3, 'norm': 'bn'}
    """
    parameters = inspect.signature(_builder(name)).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}


def build(name: str, **given: Any) -> nn.Module:
    """Build a model by name; every model takes `outputs`, the rest differs (see `options`).

    Args:
        name: One of `names()`.
        **given: Options of that model, such as `outputs=100` or `norm="frn"`.

    >>> build("mlp", in_features=64, outputs=10, hidden=(32, 32))
    MLP(
      (layers): Sequential(
        (0): Linear(in_features=64, out_features=32, bias=True)
        (1): ReLU()
        (2): Linear(in_features=32, out_features=32, bias=True)
        (3): ReLU()
        (4): Linear(in_features=32, out_features=10, bias=True)
      )
    )
    """
    known = options(name)
    for option in given:
        if option not in known:
            raise ConfigError(
                f"model {name!r} has no option {option!r}{suggestion(option, known)}, got "
                f"{option}={given[option]!r}; "
                f"its options are {', '.join(known)}"
            )
    return _builder(name)(**given)


def _builder(name: str) -> Callable[..., nn.Module]:
    if name not in BUILDERS:
        raise ConfigError(
            f"model must be one of {', '.join(BUILDERS)}, got {name!r}"
            f"{suggestion(name, BUILDERS)}; choose a name, or pass your own torch.nn.Module"
        )
    return BUILDERS[name]

"""Functions of the user's own, `module:function`: which may be imported, and the import itself.

What the user names (a flag, a config of their own, an argument in Python) is imported. What a run
folder names is data that may have come from anywhere: it is imported only if the user names the
same function, or trusts the folder. That is a decision and no sandbox: what is imported can do
whatever the user can.
"""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import isbuiltin, isclass, isfunction, ismethod
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError, UntrustedError
from entropy_mcmc.file_names import is_function_name
from entropy_mcmc.run.config import RunConfig, flatten

# The options that may name a function.
OPTIONS = ("data.name", "model.name", "loss")
# These fetch from the network; a config must not.
DOWNLOADS = ("entropy_mcmc.data.download", "torch.hub")


@dataclass(frozen=True)
class Trust:
    """What the user allows to be imported for a run folder.

    Attributes:
        names: Functions that the user named, as `module:function`.
        everything: Whether whatever the folder names may be imported (`--trust`).
        command: The command as it was typed, for the message that says how to allow a name.
        silent: Whether to say nothing, because these imports were made for the user already.
    """

    names: frozenset[str] = frozenset()
    everything: bool = False
    command: tuple[str, ...] = ()
    silent: bool = False

    def allows(self, name: str) -> bool:
        """Whether this function may be imported."""
        return self.everything or name in self.names


NOTHING = Trust()


def add_trust_options(parser: Any, **several: Any) -> None:
    """The options by which the reader of a run folder allows what it names."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import the module:function names of the folder, refused otherwise",
    )
    for option in OPTIONS:
        parser.add_argument(
            f"--{option}", default=None, help="module:function to allow, if named", **several
        )


def trust_of(options: Mapping[str, Any], command: Sequence[str]) -> Trust:
    """What parsed options allow; `command` is what was typed."""
    flat = flatten(options)
    given = [flat.get(option) or [] for option in OPTIONS]
    names = [name for value in given for name in ([value] if isinstance(value, str) else value)]
    return Trust(frozenset(names), flat["trust"], tuple(command))


def functions(config: RunConfig) -> dict[str, str]:
    """Option → `module:function` for each option of a config that names one."""
    values = (config.data.name, config.model.name, config.loss)
    named = zip(OPTIONS, values, strict=True)
    return {option: value for option, value in named if value and is_function_name(value)}


def given_by_user(config: RunConfig, **more: Any) -> Trust:
    """The trust in the functions of a config that the user wrote."""
    return Trust(names=frozenset(functions(config).values()), **more)


def accept(config: RunConfig, trust: Trust, source: Path) -> None:
    """Refuse the functions that `source` names unless they are trusted; say what is imported."""
    named = functions(config)
    for name in named.values():
        check_never(name)
    refused = {option: name for option, name in named.items() if not trust.allows(name)}
    if refused:
        raise UntrustedError(_refusal(refused, trust.command, source))
    if not trust.silent:
        for name in sorted(set(named.values())):
            file = module_file(name.partition(":")[0])
            print(f"emcmc: importing {name} from {file}, named by {source}", file=sys.stderr)


def _refusal(refused: dict[str, str], command: Sequence[str], source: Path) -> str:
    listed = ", ".join(f"{option}={name}" for option, name in refused.items())
    flags = [word for option, name in refused.items() for word in (f"--{option}", name)]
    remedy = (
        "if you know this code, allow it by naming it yourself:\n"
        f"  {shlex.join(['emcmc', *command, *flags])}\n"
        "(or allow whatever the folder names with --trust)"
        if command
        else f"if you know this code, pass trust=Trust(names=frozenset({set(refused.values())}))"
    )
    return (
        f"{source} names code to import and call: {listed}; a run folder is data, so nothing was "
        f"imported; {remedy}"
    )


def check_never(name: str) -> tuple[str, str]:
    """Split `module:function`, and refuse what no run may call, whoever names it."""
    module, _, attribute = name.partition(":")
    parts = [*module.split("."), attribute]
    if not all(part.isidentifier() for part in parts):
        raise UntrustedError(f"a function is named as module:function, got {name!r}")
    if parts[0] in sys.stdlib_module_names:
        raise UntrustedError(
            f"{name!r} is a function of Python's own library, which never makes a model, data or "
            f"a loss; name one of your own module (and do not call that module {parts[0]})"
        )
    if module in DOWNLOADS:
        raise UntrustedError(f"{name!r} would download; fetch the files first, then name a reader")
    return module, attribute


def import_function(name: str) -> Any:
    """Import `module:function`; the working folder is searched too."""
    module, attribute = check_never(name)
    _search_working_folder()
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{name!r} cannot be imported ({error}); run from the folder of {module}.py, "
            "or install it"
        ) from error
    _check_home(name, module, function)
    return function


def _check_home(name: str, module: str, function: Any) -> None:
    """Refuse what a module only imported: `mine:system` may be that of `os`."""
    home = getattr(function, "__module__", None)
    plain = isfunction(function) or isclass(function) or isbuiltin(function) or ismethod(function)
    if plain and home != module:
        raise UntrustedError(
            f"{name!r} is defined in {home}, not in {module}; name it where it is defined, or "
            f"define a function in {module} that calls it"
        )


def module_file(module: str) -> str:
    """The file that importing a module would run; imports the packages above it."""
    _search_working_folder()
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    return str(spec.origin) if spec is not None else "a file that is not there"


def _search_working_folder() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)

"""`sample`: the run engine in one call."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError, suggestion
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.config import RunConfig, leaves, with_parts
from entropy_mcmc.run.diagnose import ONE_NETWORK, diagnosis_of
from entropy_mcmc.run.model_and_data import Problem
from entropy_mcmc.run.run_folder import Record
from entropy_mcmc.run.runner import Run, run

_EXAMPLES = {"model": 'a torch.nn.Module or a name such as "mlp"', "data": "a pair (x, y)"}


def sample(
    model: Any,
    data: Any,
    *,
    method: str = "emcmc",
    run_dir: str | Path | None = None,
    loss: Any = None,
    more_cycles: int | None = None,
    override: bool = False,
    progress: bool = False,
    **options: Any,
) -> Posterior:
    """Sample the posterior of a network and return it, ready to predict.

    Called again with the same arguments and `run_dir` after a kill, it goes on where it was, and
    gives bit for bit what an uninterrupted call gives.

    Args:
        model: A `torch.nn.Module`, a function that builds one (needed for several chains of
            layers without `reset_parameters`), a name such as "mlp", or "module:function".
        data: A pair of arrays (x, y), a torch data set or DataLoader (its items are used, in an
            order that can be resumed), a `Dataset`, a name such as "digits", or
            "module:function". Whole-number targets are classes, others values to regress on.
        method: emcmc, sgld, sghmc, entropy-sgld, bsam; or the single networks sgd, sam,
            entropy-sgd, swa; or ensemble.
        run_dir: Folder of the run; None keeps it in a temporary one as long as the result lives.
        loss: Own mean loss (output, target) → scalar, instead of the likelihood's.
        more_cycles: Extend a finished run.
        override: Go on with other versions or threads than those of the first start.
        progress: Show a bar.
        **options: Any option of `emcmc sample` by its last name: `lr`, `eta`, `temperature`,
            `weight_decay`, `epochs`, `cycles`, `burn_in`, `samples_per_cycle`, `batch_size`,
            `chains`, `seed`, `roles`, `likelihood`, `precision`, ….

    Returns:
        The posterior; its model is the one that was given, or the one that was built.
        `posterior.diagnosis` says whether it is at its temperature and mixed, as the command does;
        with `progress` it is printed.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> posterior = sample(network, (x, x[:, 0] ** 2), epochs=40, batch_size=20)
    >>> len(posterior), posterior.predict(x).shape
    (8, torch.Size([40]))
    """
    config = replace(configured(options), method=method)
    config = with_parts(config, output={"progress": progress, "baseline": "none"})
    config, given = named_or_given(config, model, data, loss)
    temporary = None if run_dir is not None else tempfile.mkdtemp(prefix="emcmc-")
    config = replace(config, run_dir=str(run_dir or temporary))
    done = run(config, more_cycles=more_cycles, override=override, **given)
    posterior = done.posterior
    # Without the posterior itself, which would then never be freed, nor its temporary folder.
    posterior.diagnosed_by(partial(_diagnosis, done.folder, done.record, done.problem))
    if progress and done.is_main:
        print(posterior.diagnosis or ONE_NETWORK)
    if temporary is not None:
        weakref.finalize(posterior, shutil.rmtree, temporary, ignore_errors=True)
    return posterior


def _diagnosis(folder: Path, record: Record, problem: Problem, posterior: Posterior) -> Any:
    return diagnosis_of(Run(folder, record, problem, posterior))


# What other libraries call our options.
SYNONYMS = {"learning_rate": "lr", "max_epochs": "epochs", "n_epochs": "epochs", "T": "temperature"}


def _likely(name: str, places: Mapping[str, str]) -> str:
    return suggestion(SYNONYMS.get(name, name), places)


def configured(options: dict[str, Any]) -> RunConfig:
    """A config from options by their last names.

    >>> configured({"lr": 0.3, "epochs": 5}).schedule.epochs
    5
    """
    places = {name.rpartition(".")[2]: name for name, *_ in leaves()}
    top: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name not in places or name in ("name", "options"):
            raise ConfigError(
                f"sample has no option {name!r}{_likely(name, places)}; it has "
                f"{', '.join(sorted(places))}"
            )
        part, _, leaf = places[name].rpartition(".")
        if part:
            parts.setdefault(part, {})[leaf] = value
        else:
            top[leaf] = value
    return with_parts(replace(RunConfig(), **top), **parts)


def named_or_given(
    config: RunConfig, model: Any, data: Any, loss: Any
) -> tuple[RunConfig, dict[str, Any]]:
    """The config with the names among model, data and loss, and the objects among them."""
    for name, value in (("model", model), ("data", data)):
        if value is None:
            raise ConfigError(
                f"{name} must be given, got None; pass {_EXAMPLES[name]}, or run `emcmc sample` "
                "for the embedded digits"
            )
    if isinstance(loss, str):
        config, loss = replace(config, loss=loss), None
    given: dict[str, Any] = {"loss": loss}
    for part, value in (("model", model), ("data", data)):
        if isinstance(value, str):
            config = with_parts(config, **{part: {"name": value}})
        else:
            given[part] = value
    return config, given

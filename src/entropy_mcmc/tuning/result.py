"""What a search found: the table, the config to sample with, and what it gained."""

from __future__ import annotations

import csv
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc.run.config import RunConfig, flatten, leaves, to_dict
from entropy_mcmc.run.config_file import dump
from entropy_mcmc.run.trust import functions
from entropy_mcmc.text_table import aligned
from entropy_mcmc.tuning.search import RECIPE, Outcome, Trial
from entropy_mcmc.tuning.space import KNOBS

CHOSEN, TABLE, PICTURE = "chosen.yaml", "trials.csv", "tune.svg"


@dataclass(frozen=True)
class Tuned:
    """A finished search; `str` is its table.

    Attributes:
        folder: Of the search.
        config: To sample with, all training rows included.
        outcome: Every trial.
    """

    folder: Path
    config: RunConfig
    outcome: Outcome

    @property
    def nll(self) -> float:
        """NLL of the chosen settings on the validation rows."""
        return self.outcome.best.nll

    @property
    def options(self) -> dict[str, Any]:
        """The chosen settings as arguments of `sample(model, data, **options)`.

        Names of model and data, and the loss, are left out: pass yours again.
        """
        left_out = ("run_dir", "loss", "model.name", "data.name")
        plain = {n: v for n, v in self._changed.items() if n not in left_out}
        return {name.rpartition(".")[2]: value for name, value in plain.items()}

    @cached_property
    def _changed(self) -> dict[str, Any]:
        """Options of the chosen config that differ from the defaults of the command."""
        values = flatten(to_dict(self.config))
        return {
            name: _value(self.config, name)
            for name, _, default, _ in leaves()
            if values.get(name, _value(self.config, name)) != default
        }

    @property
    def gain(self) -> tuple[float, float]:
        """NLL of the chosen settings minus the recipe's at full length, and its standard error.

        Paired over the validation rows. The chosen one was picked on these rows, so that its NLL
        is a little too good.
        """
        best, recipe = self.outcome.best, self.outcome.recipe
        if best.number == RECIPE or not math.isfinite(recipe.nll):
            return (0.0 if best.number == RECIPE else -math.inf), 0.0
        first, second = (np.array(t.results[t.longest].rows) for t in (best, recipe))
        difference = first - second
        spread = difference.std(ddof=1) / math.sqrt(len(difference))
        return float(difference.mean()), float(spread)

    def __str__(self) -> str:
        return "\n".join([table(self.outcome), "", *self._sentences()])

    def _sentences(self) -> Iterator[str]:
        best = self.outcome.best
        rows = len(best.results[best.longest].rows)
        yield f"chosen: trial {best.number}, NLL {best.nll:.4f} on {rows} validation rows"
        if best.number == RECIPE:
            yield "the recipe's own values were the best"
        else:
            difference, error = self.gain
            recipe = self.outcome.recipe.nll
            yield (
                f"the recipe: NLL {recipe:.4f}; difference {difference:+.4f} ± {error:.4f}"
                + _verdict(difference, error)
                if math.isfinite(recipe)
                else "the recipe diverged"
            )
        if self.outcome.on_edge:
            yield (
                f"{', '.join(self.outcome.on_edge)}: the best value is at the end of the range "
                "that was\nsearched; use more --trials"
            )

    @property
    def command(self) -> str:
        """The command that samples with the chosen settings."""
        words = ["emcmc", "sample", "--config", str(self.folder / CHOSEN)]
        # The folder is data: functions that its config names must be named again.
        for option, name in functions(self.config).items():
            words += [f"--{option}", name]
        return shlex.join(words)

    def write(self) -> None:
        """Write the chosen config, the table and the picture into the folder."""
        from entropy_mcmc.tuning.search_figure import save_picture

        best = self.outcome.best
        head = f"# trial {best.number} of emcmc tune: validation NLL {best.nll:.4f}\n"
        texts = {CHOSEN: head + dump(_nested(self._changed)), TABLE: as_csv(self.outcome)}
        for name, text in texts.items():
            with atomic(self.folder / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        with atomic(self.folder / PICTURE) as temporary:
            save_picture(self.outcome, temporary)


def table(outcome: Outcome) -> str:
    """Trials, the best one first: settings, and validation NLL after each length."""
    names = [axis.name for axis in outcome.space]
    lengths = [rung.epochs for rung in outcome.rungs]
    head = ["trial", *(KNOBS[n].label or n for n in names), *(f"{e} epochs" for e in lengths)]
    body = [
        [
            f"{trial.number} recipe" if trial.number == RECIPE else str(trial.number),
            *(f"{trial.point[name]:.4g}" for name in names),
            *(_cell(trial, length) for length in lengths),
        ]
        for trial in outcome.ranked
    ]
    return aligned([head, *body])


def as_csv(outcome: Outcome) -> str:
    """The table with all digits."""
    names = [axis.name for axis in outcome.space]
    lengths = [rung.epochs for rung in outcome.rungs]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *names, *(f"nll_{length}_epochs" for length in lengths)])
    for trial in outcome.ranked:
        losses = [trial.results[e].nll if e in trial.results else "" for e in lengths]
        writer.writerow([trial.number, *(trial.point[name] for name in names), *losses])
    return text.getvalue()


def _cell(trial: Trial, length: int) -> str:
    if length not in trial.results:
        return ""
    nll = trial.results[length].nll
    return f"{nll:.4f}" if math.isfinite(nll) else "diverged"


def _verdict(difference: float, error: float) -> str:
    return "" if difference < -2 * error else " (within the error)"


def _value(config: RunConfig, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """{"sampler.lr": 0.1} → {"sampler": {"lr": 0.1}}."""
    tables: dict[str, Any] = {}
    for name, value in flat.items():
        part, _, leaf = name.rpartition(".")
        (tables.setdefault(part, {}) if part else tables)[leaf] = value
    return tables

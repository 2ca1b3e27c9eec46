"""The part of every callback that knows no framework: schedule, samples, resuming, batch norm."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.posterior import Posterior, ranks
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc.schedules import Cyclical

SCHEDULE = "schedule.json"


class Collector:
    """Drive a sampler through cycles and keep the samples that are due.

    What the schedule began with is in `schedule.json` beside the samples, so that a training
    resumes from its step alone, whatever the framework's checkpoint holds.

    Args:
        folder: Folder of the samples: new at the first step, reopened when a training resumes.
        cycles: Warm restarts of lr.
        burn_in: Part of each cycle without noise.
        samples_per_cycle: Samples kept in each.
        coupled: When θ and θ_a are: "always", or "noisy", after burn-in, as recipes have it.
        warm_up: Part of the first cycle in which lr rises to its peak.
        options: Of `Posterior.create`: likelihood, output, roles, dtype, thin, keep_last.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        cycles: int = 4,
        burn_in: float = 0.8,
        samples_per_cycle: int = 2,
        coupled: str = "always",
        warm_up: float = 0.0,
        **options: Any,
    ) -> None:
        self.folder = Path(folder)
        self.plan = {
            "cycles": cycles,
            "burn_in": burn_in,
            "samples_per_cycle": samples_per_cycle,
            "coupled": coupled,
            "warm_up": warm_up,
        }
        self.options = options
        self.sampler: Optimizer | None = None
        self.schedule: Cyclical | None = None
        self._posterior: Posterior | None = None
        self._used: dict[str, float] = {}

    @property
    def posterior(self) -> Posterior:
        """The samples so far; there are none before the training has begun."""
        if self._posterior is None:
            raise StateError("there is no posterior yet: it is made when the training begins")
        return self._posterior

    def begin(self, model: nn.Module, sampler: Optimizer, total_steps: float, step: int) -> None:
        """Make the samples and the schedule, or, after step 0, reopen them and go on."""
        if not 0 < total_steps < float("inf"):
            raise ConfigError(
                f"the number of steps must be known when training begins, got {total_steps}; "
                "set max_steps, or max_epochs with data of known length"
            )
        self.close()
        schedule = Cyclical(sampler, int(total_steps), **self.plan)  # type: ignore[arg-type]
        if step == 0:
            self._posterior = Posterior.create(self.folder, model, **self.options)
            if ranks.is_main():
                _write(self.folder / SCHEDULE, schedule.state_dict())
        else:
            schedule.load_state_dict(self._resumed(schedule, step))
            self._posterior = Posterior.open(
                self.folder, model, append=True, output=self.options.get("output")
            )
        self.sampler, self.schedule = sampler, schedule

    def _resumed(self, schedule: Cyclical, step: int) -> dict[str, Any]:
        """The schedule's state at `step`, with lr as it was at the beginning."""
        try:
            began: dict[str, Any] = json.loads((self.folder / SCHEDULE).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise StateError(
                f"the training resumes at step {step}, but {self.folder / SCHEDULE} cannot be "
                "read; give the folder that the training began with, or begin anew"
            ) from error
        began = {"coupled": "always", "warm_up": 0.0, **began}  # earlier versions have no other
        now = schedule.state_dict()
        for name in ("total_steps", *self.plan):
            if began.get(name) != now[name]:
                raise ConfigError(
                    f"a training resumes with what it began with, {name}={began.get(name)}, got "
                    f"{name}={now[name]}; the cycles would move otherwise"
                )
        return {**now, "base_lrs": began["base_lrs"], "last_step": step}

    def reach(self, step: int) -> bool:
        """After an optimizer step, the number of steps made: collect if a sample is due.

        A call without a new step (accumulated gradients) does nothing. True if something was kept.
        """
        schedule = self.schedule
        if schedule is None or step <= schedule.last_step:
            return False
        cycle = schedule.cycle(schedule.last_step)
        assert self.sampler is not None
        group = self.sampler.param_groups[0]  # before a restart raises lr and ends the noise
        noise = float(group.get("noise", False))
        self._used = {"emcmc/lr": float(group["lr"]), "emcmc/noise": noise}
        return schedule.step() and self.posterior.collect(self.sampler, step=step, cycle=cycle) > 0

    def readings(self) -> dict[str, float]:
        """Numbers for a logger: lr and noise of the last step, and the number of samples."""
        return {**self._used, "emcmc/samples": float(len(self.posterior))}

    def finish(self, loader: Iterable[Any] | None) -> None:
        """Give the samples their batch-norm statistics from `loader`, and let other writers in."""
        if loader is not None:
            self.posterior.refresh_batchnorm(loader)
        self.close()

    def close(self) -> None:
        """Let other writers in; reading goes on."""
        if self._posterior is not None:
            self._posterior.close()


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content), "utf-8")

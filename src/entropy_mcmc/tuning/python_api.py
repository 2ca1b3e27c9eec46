"""`tune`: a search in one call."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.python_api import configured, named_or_given
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.result import Tuned
from entropy_mcmc.tuning.search_runner import tune_run


def tune(
    model: Any,
    data: Any,
    *,
    method: str = "emcmc",
    tune_dir: str | Path | None = None,
    loss: Any = None,
    trials: int = 16,
    validation: float = 0.2,
    search: Sequence[str] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    workers: int | None = None,
    override: bool = False,
    progress: bool = False,
    **options: Any,
) -> Tuned:
    """Choose lr, prior variance, T and the like by the NLL of rows held out of the training data.

    The first trial is the recipe. All trials run for a part of the budget, the best ones at full
    length, from scratch. Called again with the same arguments and `tune_dir` after a kill, it goes
    on where it was, and finds the same. Test data are never looked at.

    Args:
        model: As of `sample`: a network, a function that builds one, or a name.
        data: As of `sample`; {"train": …, "validation": …} brings its own validation rows.
        method: Any method of `sample`.
        tune_dir: Folder of the search; None keeps it in a temporary one as long as the result
            lives.
        loss: Own mean loss (output, target) → scalar, instead of the likelihood's.
        trials: Settings to try.
        validation: Part of the training rows to judge by.
        search: What to choose, of lr, inner_lr, prior_variance, temperature, horizon (ηN/lr as a
            part of a cycle), momentum and rho; by default what matters for the method and is not
            given.
        ranges: Own ranges by name, such as {"lr": (0.01, 0.3)}; they are never widened.
        workers: Trials at once, one thread each; all cores by default.
        override: Go on with other versions than those of the first start.
        progress: Show a bar.
        **options: Any option of `sample`: what is given is not searched.

    Returns:
        The table as `str`, and `options` to sample with: `sample(model, data, **tuned.options)`.
    """
    config = replace(configured(options), method=method)
    config = with_parts(config, output={"progress": progress, "baseline": "none"})
    config, given = named_or_given(config, model, data, loss)
    temporary = None if tune_dir is not None else tempfile.mkdtemp(prefix="emcmc-tune-")
    how = TuneConfig(
        tune_dir=str(tune_dir or temporary),
        trials=trials,
        validation=validation,
        search=None if search is None else list(search),
        ranges={name: list(ends) for name, ends in (ranges or {}).items()},
        workers=workers,
    )
    tuned = tune_run(config, how, override=override, **given)
    if temporary is not None:
        weakref.finalize(tuned, shutil.rmtree, temporary, ignore_errors=True)
    return tuned

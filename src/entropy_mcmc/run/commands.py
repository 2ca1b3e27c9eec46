"""What the subcommands do, once their arguments are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from entropy_mcmc import data as data_sets
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.diagnose import diagnose_run
from entropy_mcmc.run.evaluate import evaluate, table
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.loaded_run import BASELINE, load_run
from entropy_mcmc.run.predict import predict_file
from entropy_mcmc.run.runner import Run, run
from entropy_mcmc.run.trust import Trust, given_by_user

SEVERITIES = (1, 2, 3, 4, 5)


def sample_command(config: RunConfig, more_cycles: int | None, override: bool) -> Run | None:
    """Run or go on, then show how good it is, beside the baseline.

    Returns:
        The run with the predictions that were made; None but on the main process.
    """
    config = replace(config, run_dir=config.folder)
    done = run(config, more_cycles=more_cycles, override=override)
    if _wants_baseline(config):
        chains = done.record.config.chains
        base = run(baseline_config(replace(config, chains=chains)), override=override, like=done)
        done = replace(done, beside=base if base.local else None)
    return _report(done, given_by_user(config, silent=True)) if done.is_main else None


def _wants_baseline(config: RunConfig) -> bool:
    automatic = config.data.name == "digits" and config.method != "sgd"
    return config.output.baseline == "sgd" or (config.output.baseline == "auto" and automatic)


def baseline_config(config: RunConfig) -> RunConfig:
    """One SGD network with the same data, weights at the start, and gradient budget."""
    fresh = RunConfig()
    plain = replace(
        config,
        method="sgd",
        chains=1,
        replicas=1,
        roles=None,
        run_dir=str(Path(config.folder) / BASELINE),
        sampler=fresh.sampler,
    )
    epochs = config.schedule.epochs * (config.chains or 1)
    strategy = config.compute.strategy
    return with_parts(
        replace(plain, schedule=fresh.schedule),
        schedule={"epochs": epochs},
        compute={"strategy": "auto" if strategy == "replicas" else strategy},
        output={"baseline": "none"},
    )


def _report(done: Run, trust: Trust) -> Run:
    """Print how good the run is; its predictions stay with what is returned."""
    kept = len(done.posterior)
    print(f"{kept} sample{'' if kept == 1 else 's'} in {done.folder}")
    local = replace(done, trust=trust)
    loaded = local if done.local else load_run(done.folder, trust=trust, like=done)
    _show_quality(loaded)
    print(diagnose_run(loaded))
    return loaded


def _show_quality(loaded: Run) -> None:
    journal = Journal(loaded.folder)
    if loaded.problem.test is None:
        print("no test data were given, so nothing was measured")
        return
    if not journal.evaluations():
        evaluate(loaded)
    print(table(journal.evaluations()))
    if any(event["set"] == "ood:shuffled" for event in journal.evaluations()):
        print("ood:shuffled = test images with all pixels rearranged; score: predictive entropy")


def evaluate_command(run: str, corruptions: Sequence[str], device: str, trust: Trust) -> None:
    """Measure again, with corruptions, and print the table."""
    loaded = load_run(run, device, trust)
    types = corruption_types(corruptions)
    print(table(evaluate(loaded, types, SEVERITIES, progress=True)))


def corruption_types(names: Sequence[str]) -> tuple[str, ...]:
    """`all`, `none`, or names.

    >>> corruption_types(["none"])
    ()
    """
    if list(names) == ["none"]:
        return ()
    known = data_sets.corruption_names()
    if list(names) == ["all"]:
        return known
    for name in names:
        if name not in known:
            raise ConfigError(f"corruptions must be all, none or of {', '.join(known)}, got {name}")
    return tuple(names)


def predict_command(
    run: str, input: str, output: str, batch_size: int, device: str, trust: Trust
) -> None:
    """Predict a file."""
    rows = predict_file(load_run(run, device, trust), Path(input), Path(output), batch_size)
    print(f"{rows} predictions in {output}")

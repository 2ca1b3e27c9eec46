"""Runs of the first edition's last ablation: SGLD and EMCMC at half length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from entropy_mcmc_reproduction import search
from entropy_mcmc_reproduction.cifar import of, values
from entropy_mcmc_reproduction.items import Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.methods import job
from entropy_mcmc_reproduction.scale import Scale, scale
from entropy_mcmc_reproduction.text import number

GROUP = "ablation"


def variant(
    size: str,
    place: Place,
    method: str,
    label: str,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Job]:
    """A method with its tuned hyper-parameters and another config, for every seed."""
    chosen, tuned = _judged(scale(size)), search.tuned(scale(size), place)
    return [
        job(
            method,
            seed,
            chosen,
            tuned[method],
            group=GROUP,
            label=label,
            part=chosen.ablation_part,
            warm_numbers=tuned["sgd"],
            measure={"train": False, "borrowed": label == "emcmc"},
            changes=changes,
        )
        for seed in chosen.seeds
    ]


def _judged(chosen: Scale) -> Scale:
    if chosen.ablation_rows is None:
        return chosen
    return replace(chosen, data={**chosen.data, "test_rows": chosen.ablation_rows})


def scores(results: Results, label: str, *path: str) -> list[float]:
    """One score of each seed, found by its keys; by default the test NLL."""
    return values(of(results, label, GROUP), *(path or ("test", "both", "nll")))


def row(results: Results, first: str, label: str) -> list[str]:
    """Label, accuracy, NLL and ECE of a variant; dashes while it is missing."""
    if not scores(results, label):
        return [first, "–", "–", "–"]
    found = {key: scores(results, label, "test", "both", key) for key in ("accuracy", "nll", "ece")}
    return [
        first,
        number(found["accuracy"], 2, 100),
        number(found["nll"]),
        number(found["ece"], 2, 100),
    ]


SCORES = ["accuracy %", "NLL", "ECE %"]


def note(size: str) -> str:
    """The length of these runs, in words."""
    chosen = scale(size)
    judged = f"the first {chosen.ablation_rows}" if chosen.ablation_rows else "all"
    return (
        f"{round(chosen.epochs * chosen.ablation_part)} passes of gradients (of which "
        f"{round(chosen.warm_epochs * chosen.ablation_part)} of SGD as a shared start), "
        f"{len(chosen.seeds)} seed(s), other hyper-parameters as tuned, judged on {judged} test "
        "pictures; ± is the standard error over seeds."
    )

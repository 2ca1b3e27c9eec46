"""The ablations as data: what is changed, how it is called, what the paper claims of it.

EMCMC by the recipe of its task (lr 0.1, momentum 0.9, T = 0.02, noise and coupling on for the
second half), one thing changed at a time.
"""

from __future__ import annotations

from entropy_mcmc_reproduction.claims import Claim
from entropy_mcmc_reproduction.study import Study, Variant, against_all
from tournament.methods import slug


def _recipe(text: str, paper: float | None = None) -> Variant:
    return Variant("emcmc", text, paper=paper)


_PAPER_T = {
    "EMCMC": (81.93, 91.67, None, 94.47, 94.98, 95.06, 95.18),
    "SGLD": (82.89, 91.67, None, 94.12, 94.95, 94.86, 95.17),
    "SGHMC": (None,) * 7,
}
_LEVELS = ("1", "0.1", "0.02", "0.01", "1e-3", "1e-4", "1e-6")
_LOW = "1e-4"  # where the paper has its results


def _temperatures() -> Study:
    variants = [
        Variant(
            "emcmc" if (method, t) == ("EMCMC", "0.02") else f"{method.lower()}-T{t}",
            f"{method}, T = {t}",
            {"temperature": float(t)},
            method,
            paper=paper,
        )
        for method, papers in _PAPER_T.items()
        for t, paper in zip(_LEVELS, papers, strict=True)
    ]
    names = {v.text: v.label for v in variants}
    claims = [
        Claim(
            f"{m} is better at T = {_LOW} than at T = 1",
            names[f"{m}, T = {_LOW}"],
            names[f"{m}, T = 1"],
            source="ours" if m == "SGHMC" else "paper",
            short=f"low T with {m}",
        )
        for m in _PAPER_T
    ]
    claims.append(
        Claim(
            f"EMCMC is better than SGLD at T = {_LOW}",
            names[f"EMCMC, T = {_LOW}"],
            names[f"SGLD, T = {_LOW}"],
            limit="SGLD has no momentum: see EMCMC against SGHMC, which has it",
            short="than SGLD",
        )
    )
    claims += [
        Claim(
            f"EMCMC is better than SGHMC at T = {t}",
            names[f"EMCMC, T = {t}"],
            names[f"SGHMC, T = {t}"],
            source="ours",
        )
        for t in _LEVELS
    ]
    note = (
        "The paper's accuracies are with augmentation, ours without. EMCMC and SGHMC have momentum "
        "and SGLD cannot have it, so its row is compared once; SGHMC is SGLD with momentum, and "
        "says what the guide adds at each temperature."
    )
    return Study(
        "temperature",
        "appendix, temperature table",
        "T",
        variants,
        claims,
        note=note,
        says="a low T is better than T = 1, and EMCMC is better than SGLD at most T",
    )


def _burn_in() -> Study:
    parts = ((0.0, 95.61), (0.2, 95.62), (0.4, 95.57), (0.6, 95.67), (0.8, 95.72), (0.94, 95.41))
    variants = [
        Variant(f"emcmc-burn{part:g}", f"{part:g}", {"noise_from": part}, paper=paper)
        for part, paper in parts
    ]
    variants.insert(3, _recipe("0.5 (recipe)"))
    note = "Samples are spread over the noisy part. The paper has four cycles of 50 passes."
    claims = against_all("a burn-in of 0.8 is better than {}", "emcmc-burn0.8", variants)
    place = "appendix, burn-in table"
    return Study(
        "SGD burn-in",
        place,
        "part without noise",
        variants,
        claims,
        note=note,
        says="a burn-in of 0.8 of each cycle is best",
    )


def _eta() -> Study:
    parts = (0.01, 0.05, 1.0, 5.0)
    variants = [Variant(f"emcmc-horizon{p:g}", f"{p:g}", {"horizon": p}) for p in parts]
    variants.insert(2, _recipe("0.2 (recipe)"))
    note = "ηN/lr is the number of steps over which the guide averages; η alone means nothing."
    ends = [("a middle η is better than the {}", v) for v in (variants[0], variants[-1])]
    words = ("smallest", "largest")
    claims = [
        Claim(text.format(word), "emcmc", v.label, short=f"than the {word}")
        for (text, v), word in zip(ends, words, strict=True)
    ]
    column = "ηN/lr as a part of all steps"
    return Study(
        "variance of the guide",
        "appendix, η figure",
        column,
        variants,
        claims,
        note=note,
        says="a middle η is best",
    )


def _gibbs() -> Study:
    plain = {"momentum": 0.0, "lr": 0.4}
    variants = [
        Variant(f"emcmc-{rule}", rule, {**plain, "guide_update": rule})
        for rule in ("euler", "exact", "gibbs")
    ]
    note = "Without momentum, which `exact` and `gibbs` do not have, at four times the lr."
    claims = [Claim("joint updates are better than Gibbs-like ones", "emcmc-euler", "emcmc-gibbs")]
    column = "update of the guide"
    return Study(
        "joint against Gibbs-like updates",
        "appendix",
        column,
        variants,
        claims,
        note=note,
        says="joint updates are better than Gibbs-like ones",
    )


def _schedules() -> Study:
    papers = {"constant": 88.04, "linear": 87.89, "exponential": 87.75, "step": 89.59}
    variants = [
        Variant(f"emcmc-{kind}", kind, {"decay": kind}, paper=paper)
        for kind, paper in papers.items()
    ]
    four = {"cycles": 4, "samples": 2}
    variants.append(Variant("emcmc-cyclical", "cyclical, 4 cycles", four, paper=89.93))
    variants.append(_recipe("one cosine (recipe)"))
    note = "The paper's row is on CIFAR-100 by its caption."
    claims = against_all("the cyclical schedule is better than: {}", "emcmc-cyclical", variants)
    place = "appendix, schedule table"
    return Study(
        "step-size schedules",
        place,
        "schedule of lr",
        variants,
        claims,
        note=note,
        says="the cyclical schedule is best",
    )


def _sample_set() -> Study:
    # The readout "both" alternates θ and θ_a; every second of its 16 networks is a guide.
    variants = [
        _recipe("θ (recipe)", 95.58),
        Variant("emcmc-guides", "θ_a", method_changes={"readout": "both", "kept": 8}, paper=95.64),
        Variant(
            "emcmc-both", "θ and θ_a", method_changes={"readout": "both", "kept": 16}, paper=95.65
        ),
    ]
    note = "Both together are twice as many networks as either alone, of the same chain."
    claims = against_all("both together are better than {} alone", "emcmc-both", variants)
    place = "appendix, sample-set table"
    return Study(
        "composition of the sample set",
        place,
        "networks",
        variants,
        claims,
        note=note,
        says="samples of θ and θ_a together are best",
    )


def _normalisation() -> Study:
    variants = [
        _recipe("none (recipe)"),
        Variant("emcmc-bn", "batch norm, statistics made anew", task="digits-bn", paper=95.47),
        Variant("emcmc-frn", "FRN", task="digits-frn", paper=93.92),
    ]
    note = "The paper's third way, statistics borrowed from θ, is not in this edition."
    claims = [Claim("batch norm is better than FRN", "emcmc-bn", "emcmc-frn")]
    place = "appendix, normalisation table"
    return Study(
        "normalisation layers",
        place,
        "normalisation",
        variants,
        claims,
        note=note,
        says="batch norm is better than FRN",
    )


def _warm_up() -> Study:
    """The recipe's warm-up, on a task that had no part in its choice."""
    methods, task = ("SGD", "ensemble 4", "EMCMC", "EMCMC ×4"), "mnist-cnn"
    variants = [
        Variant(f"{slug(m)}-{label}", f"{m}, {text}", changes, m, task)
        for m in methods
        for label, text, changes in (
            ("warm", "warm-up (recipe)", {}),
            ("cold", "no warm-up", {"warm_up": 0.0}),
        )
    ]
    claims = [
        Claim(
            f"{m} is better with warm-up than without",
            f"{slug(m)}-warm",
            f"{slug(m)}-cold",
            source="ours",
        )
        for m in methods
    ]
    claims += [
        Claim(
            f"{ours} is better than {rival}, both with warm-up",
            f"{slug(ours)}-warm",
            f"{slug(rival)}-warm",
            source="ours",
        )
        for ours in methods[2:]
        for rival in methods[:2]
    ]
    note = "The warm-up was chosen on `fashion-cnn`: see [comparison](comparison.md#warm-up)."
    return Study(
        "warm-up of lr for a wide linear layer",
        "beyond the paper",
        "method",
        variants,
        claims,
        group="warm-up",
        seeds=5,
        note=note,
        smoke_task="digits",
    )


ABLATIONS = {
    "warm-up": _warm_up(),
    "temperature": _temperatures(),
    "gibbs": _gibbs(),
    "eta": _eta(),
    "schedule": _schedules(),
    "sample-set": _sample_set(),
    "normalisation": _normalisation(),
    "burn-in": _burn_in(),
}

"""The comparisons of methods on pictures as data: regimes (a), (a+) and (b) of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from entropy_mcmc_reproduction.study import PAPER_SEEDS, Study, Variant
from tournament.methods import slug
from tournament.trials import STOPPING, Search

ONE_CHAIN = (
    "SGD",
    "SAM",
    "bSAM",
    "IVON",
    "SWA",
    "EMA",
    "snapshots",
    "iterates",
    "SGLD",
    "SGHMC",
    "EMCMC",
    "guide",
    "Entropy-SGD",
    "Entropy-SGLD",
)
FOUR_CHAINS = ("ensemble 4", "iterates ×4", "SGHMC ×4", "EMCMC ×4")
AUGMENTED = tuple(
    f"{name}, augmented" for name in ("SGD", "SGHMC", "EMCMC", "ensemble 4", "SGHMC ×4", "EMCMC ×4")
)
TUNED = ("SGD", "SAM", "bSAM", "IVON", "SWA", "SGHMC", "EMCMC", "ensemble 4", "EMCMC ×4")
TUNED_CIFAR = ("SGD", "SGHMC", "EMCMC", "ensemble 4")  # a trial of the others takes too long
FIVE = ("SGD", "SGHMC", "EMCMC", "SWA", "IVON")  # of 60,000 pictures, beside those of four chains
RIVALS: dict[str, Sequence[str]] = {  # the ensemble also against one chain, at the same gradients
    "EMCMC": (*(m for m in ONE_CHAIN if m not in ("EMCMC", "guide")), "ensemble 4"),
    "EMCMC ×4": ("ensemble 4", "iterates ×4", "SGHMC ×4"),
    "EMCMC, augmented": ("SGD, augmented", "SGHMC, augmented", "ensemble 4, augmented"),
    "EMCMC ×4, augmented": ("ensemble 4, augmented", "SGHMC ×4, augmented"),
}
# The paper's NLL, Table 1a (ResNet-18, all pictures, 200 passes), on CIFAR-10 and CIFAR-100.
TABLE_1A = {
    "SGD": (0.205, 0.935),
    "Entropy-SGD": (0.184, 0.895),
    "SAM": (0.166, 0.876),
    "bSAM": (0.165, 0.870),
    "SGLD": (0.167, 0.854),
    "Entropy-SGLD": (0.194, 0.897),
    "EMCMC": (0.162, 0.840),
}
PAPER_NLL, PAPER_NLL_100 = (
    {
        rival: f"{TABLE_1A['EMCMC'][column]:.3f} against {row[column]:.3f}"
        for rival, row in TABLE_1A.items()
        if rival != "EMCMC"
    }
    for column in (0, 1)
)
BETTER = " is better than "
MEASURES = ("nll", "ece", "accuracy", "auroc")
_TUNED = (
    "Every method tuned alike, its stopping point (half or all of the budget) included: 16 "
    "settings at a quarter of the budget, the best 4 at the full budget with three seeds, picks "
    "near the end of a range also beyond it, by the NLL of validation pictures of the training set "
    "and seeds that judge nothing else."
)


def _study(
    name: str,
    title: str,
    where: str,
    seeds: int,
    methods: Sequence[str],
    papers: Mapping[str, str] | None = None,
    task: str = "",
    search: Search | None = None,
    paper_only: bool = False,
) -> Study:
    claims = [
        (f"{ours}{BETTER}{rival}", slug(ours), slug(rival))
        for ours, rivals in RIVALS.items()
        for rival in rivals
        if ours in methods and rival in methods
    ]
    return Study(
        title,
        where,
        "method",
        [Variant(slug(m), m, method=m, task=task or name) for m in methods],
        claims,
        group=name,
        seeds=seeds,
        note=_TUNED if search else "Each method by its recipe, without trials, at the same cost.",
        measures=MEASURES,
        claimed=MEASURES,
        papers={("nll", slug("EMCMC"), slug(r)): text for r, text in (papers or {}).items()},
        smoke_task="digits",
        search=search,
        paper_only=paper_only,
    )


_ALL, _BEYOND = (*ONE_CHAIN, *FOUR_CHAINS), "beyond the paper"
_SIXTY = (*FIVE, "ensemble 4", "SGHMC ×4", "EMCMC ×4")
PICTURES = {
    "cifar": _study(
        "cifar",
        "CIFAR-10, 3,000 pictures, ResNet-8",
        "Tables 1a, 2; calibration",
        8,
        _ALL,
        PAPER_NLL,
    ),
    "cifar100": _study(
        "cifar100",
        "CIFAR-100, all pictures, ResNet-18",
        "Table 1a",
        PAPER_SEEDS,
        _ALL,
        PAPER_NLL_100,
        task="cifar100-paper",
        paper_only=True,
    ),
    "cifar-augmented": _study(
        "cifar-augmented",
        "CIFAR-10 with crops and flips",
        "Table 1a; augmentation table",
        5,
        AUGMENTED,
        task="cifar",
    ),
    "fashion-mlp": _study("fashion-mlp", "Fashion-MNIST, 6,000 pictures, MLP", _BEYOND, 10, _ALL),
    "fashion-cnn": _study("fashion-cnn", "Fashion-MNIST, 6,000 pictures, CNN", _BEYOND, 5, _ALL),
    "fashion-mlp-tuned": _study(
        "fashion-mlp-tuned",
        "Fashion-MNIST, 6,000 pictures, MLP, every method tuned",
        _BEYOND,
        10,
        TUNED,
        task="fashion-mlp",
        search=STOPPING,
    ),
    "cifar-tuned": _study(
        "cifar-tuned",
        "CIFAR-10, 3,000 pictures, ResNet-8, every method tuned",
        "Table 1a",
        5,
        TUNED_CIFAR,
        PAPER_NLL,
        task="cifar",
        search=STOPPING,
    ),
    "fashion-mlp-60k": _study(
        "fashion-mlp-60k", "Fashion-MNIST, all pictures, MLP", _BEYOND, 3, _SIXTY
    ),
    "fashion-cnn-60k": _study(
        "fashion-cnn-60k", "Fashion-MNIST, all pictures, CNN", _BEYOND, 3, _SIXTY
    ),
}

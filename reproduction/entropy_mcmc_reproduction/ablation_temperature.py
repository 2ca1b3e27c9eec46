"""Appendix: temperatures from 1 to 1e-6 for SGLD and EMCMC."""

from __future__ import annotations

from entropy_mcmc_reproduction.ablations import GROUP, note, scores, variant
from entropy_mcmc_reproduction.cifar import of
from entropy_mcmc_reproduction.items import Item, Outcome, Results, Verdict
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared, number

TEMPERATURES = ("1", "1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
SMOKE = ("1", "1e-6")
COLD = "1e-4"
LABELS = {"sgld": "SGLD", "emcmc": "EMCMC"}


def temperatures(size: str) -> tuple[str, ...]:
    """Those of a scale."""
    return SMOKE if size == "smoke" else TEMPERATURES


def jobs(size: str, place: Place) -> list[Job]:
    """Both methods at every temperature."""
    return [
        made
        for method in LABELS
        for t in temperatures(size)
        for made in variant(
            size, place, method, f"{method}-T{t}", numbers={"temperature": float(t)}
        )
    ]


def show(results: Results, size: str) -> Outcome:
    """Accuracy and NLL by temperature."""
    levels = temperatures(size)
    rows = []
    for method, label in LABELS.items():
        for key, name, digits, factor in (
            ("accuracy", "accuracy %", 2, 100.0),
            ("nll", "NLL", 3, 1.0),
        ):
            found = [scores(results, f"{method}-T{t}", "test", "both", key) for t in levels]
            cells = [number(f, digits, factor) if f else "–" for f in found]
            rows.append([f"{label}, {name}", *cells])
        for key, name in (("within", "within a cycle"), ("between", "between cycles")):
            spread = [_spread(results, f"{method}-T{t}", key) for t in levels]
            if all(spread):
                rows.append([f"{label}, distance {name}", *map(number, spread)])
    made = []
    for t in levels:
        pair = [scores(results, f"{m}-T{t}", "test", "both", "accuracy") for m in ("emcmc", "sgld")]
        if pair[0] and len(pair[0]) == len(pair[1]):
            made.append(
                compared(
                    f"EMCMC is more accurate than SGLD at T = {t}", *pair, lower=False, percent=True
                )
            )
    made += [found for method in LABELS for found in _colder(results, method, levels)]
    return Outcome(["T", *levels], rows, made, notes=[note(size), _note(size)])


def _spread(results: Results, label: str, key: str) -> list[float]:
    """Distance of samples of θ `within` a cycle or `between` cycles, of each seed that has it."""
    runs = of(results, label, GROUP)
    weights = [run["diagnostics"]["roles"][0]["weights"] for run in runs]
    return [found[key] for found in weights if found and found[key] is not None]


def _note(size: str) -> str:
    part = 1 - scale(size).burn_in
    return (
        f"Noise is on only in the last {part:.0%} of each cycle, where lr is smallest. Distance: "
        "of the weights of two samples of θ; it grows as √T where noise moves them, and where it "
        "stays small beside the distance between cycles, T can change little."
    )


def _colder(results: Results, method: str, levels: tuple[str, ...]) -> list[Verdict]:
    """The paper: both methods improve from 1 to 1e-4."""
    cold = COLD if COLD in levels else levels[-1]
    pair = [scores(results, f"{method}-T{t}", "test", "both", "accuracy") for t in (cold, "1")]
    if not pair[0] or len(pair[0]) != len(pair[1]):
        return []
    claim = f"{LABELS[method]} is more accurate at T = {cold} than at T = 1"
    return [compared(claim, *pair, lower=False, percent=True)]


ITEM = Item("temperature", "appendix, temperature table", jobs, show)

"""ESS per second, and how many times that of others it is."""

from __future__ import annotations

from statistics import median
from typing import Any

from effective import ours

Stored = dict[str, Any]
# All samplers of the others, the closest first: underdamped ones, then those of the whole energy.
RIVALS = ("posteriors BAOA", "posteriors SGHMC", "blackjax SGHMC", "blackjax MCLMC")
RIVALS += ("blackjax NUTS", "blackjax SGLD", "posteriors SGLD")
# The same rule here and there.
LIKE = (
    ("SGHMC baoab", "posteriors BAOA"),
    ("SGHMC", "posteriors SGHMC"),
    ("SGHMC", "blackjax SGHMC"),
    ("SGLD", "posteriors SGLD"),
    ("SGLD", "blackjax SGLD"),
)
NONE = "–"


def cell_of(stored: Stored, name: str, method: str) -> dict[str, Any] | None:
    """A sampler's best run on a target; None if it has none."""
    cell = stored["cells"].get(f"{name} | {method}")
    return cell["best"] if cell else None


def rates_of(stored: Stored, name: str, method: str) -> list[float]:
    """Gradients of all chains per CPU-second, of each turn."""
    return list(stored["seconds"].get(name, {"rates": {}})["rates"].get(method, []))


def per_second(stored: Stored, name: str, method: str) -> float | None:
    """ESS per CPU-second by the median of the turns; None if it was not timed."""
    best, rates = cell_of(stored, name, method), rates_of(stored, name, method)
    return best["per_gradient"] * median(rates) if best and rates else None


def columns(stored: Stored, name: str, method: str) -> str:
    """Two cells of a table: gradients per second with their range, and ESS per second."""
    rates, value = rates_of(stored, name, method), per_second(stored, name, method)
    if value is None:
        return f"{NONE} | {NONE}"
    shown = f"{rounded(median(rates))} ({rounded(min(rates))} to {rounded(max(rates))})"
    return f"{shown} | {rounded(value)}"


def rounded(value: float) -> str:
    """Three digits, with thousands apart.

    >>> rounded(1234.5), rounded(0.012345), rounded(263.2), rounded(1040)
    ('1,230', '0.0123', '263', '1,040')
    """
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short >= 100 else f"{short:g}"


def best_here(stored: Stored, name: str) -> str | None:
    """The sampler of this library with most ESS per second; per gradient where none was timed."""
    cells = {method: cell_of(stored, name, method) for method in ours.METHODS}
    per_gradient = {method: best["per_gradient"] for method, best in cells.items() if best}
    speeds = {method: per_second(stored, name, method) for method in per_gradient}
    measured = {method: speed for method, speed in speeds.items() if speed is not None}
    values = measured or per_gradient
    return max(values, key=lambda method: values[method]) if values else None


def ratio_rows(stored: Stored, name: str) -> list[str]:
    """The best rule here against each rival: biases, and ratios of ESS."""
    here = best_here(stored, name)
    if here is None:
        return []
    return [
        ratio_row(stored, name, here, rival) for rival in RIVALS if cell_of(stored, name, rival)
    ]


def like_rows(stored: Stored, name: str) -> list[str]:
    """Each rule here against the same rule there, where both have a run."""
    return [
        ratio_row(stored, name, here, there)
        for here, there in LIKE
        if cell_of(stored, name, here) and cell_of(stored, name, there)
    ]


def ratio_row(stored: Stored, name: str, here: str, rival: str) -> str:
    """One comparison."""
    ours_, theirs = cell_of(stored, name, here), cell_of(stored, name, rival)
    assert ours_ is not None
    assert theirs is not None
    speeds = [per_second(stored, name, method) for method in (here, rival)]
    in_time = NONE
    if speeds[0] is not None and speeds[1] is not None:
        in_time = rounded(speeds[0] / speeds[1])
    in_gradients = rounded(ours_["per_gradient"] / theirs["per_gradient"])
    title = stored["targets"][name]["title"]
    biases = f"{shown_bias(ours_)} | {shown_bias(theirs)}"
    return f"| {title} | **{here}** | {rival} | {biases} | {in_gradients} | {in_time} |"


def shown_bias(best: dict[str, Any]) -> str:
    """Bias with its standard error, if it has one."""
    error = f" ± {best['bias_error']:.1%}" if "bias_error" in best else ""
    return f"{abs(best['bias']):.1%}{error}"


def compile_times(stored: Stored) -> str:
    """Seconds by the clock that compiling one sampler took, here and in blackjax."""
    parts = []
    for library, is_of in (
        ("this library", lambda method: method in ours.METHODS),
        ("blackjax", lambda method: method.startswith("blackjax")),
    ):
        taken = [
            seconds
            for timed in stored["seconds"].values()
            for method, seconds in timed.get("compiling", {}).items()
            if is_of(method)
        ]
        if taken:
            parts.append(f"{library} {min(taken):.0f} to {max(taken):.0f} s")
    return ", ".join(parts) or "not measured yet"

"""False-alarm and detection rates of the diagnosis' verdicts, written into docs/diagnostics.md.

python benchmarks/diagnosis_rates.py        some minutes of one core
python benchmarks/diagnosis_rates.py --quick  a tenth of the trials, printed only
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from entropy_mcmc import EntropyMCMC
from entropy_mcmc.diagnostics import Thermometer, agreements, judge, mixing, pair_temperature
from entropy_mcmc.diagnostics.verdicts import FEW, MOVED

PAGE = Path(__file__).parents[1] / "docs" / "diagnostics.md"
START, END = "<!-- rates: benchmarks/diagnosis_rates.py -->\n", "<!-- end of rates -->"
Trial = Callable[[torch.Generator], bool]


class Row(NamedTuple):
    """A verdict, what it was tried on, whether it should speak, and one try."""

    verdict: str
    tried_on: str
    fault: bool
    trial: Trial
    trials: int


def differing(chains: int, each: int, apart: float, kind: str = "normal", width: int = 20) -> Trial:
    """Groups of draws whose centres are `apart` standard deviations from each other at random."""

    def trial(g: torch.Generator) -> bool:
        values = torch.randn(chains * each, width, generator=g)
        if kind == "log-normal":
            values = values.exp()
        if kind == "copies":
            values = values[:, :1].expand(-1, width)
        labels = [(c, 0) for c in range(chains) for _ in range(each)]
        centres = apart * torch.randn(chains, width, generator=g)
        agreement = agreements(values + centres.repeat_interleave(each, 0), labels)
        return any(one.verdict == "differ" for one in agreement)

    return trial


def drawn(
    spread: float, count: int, size: int, correlation: float = 0.0, noise: float = 0.0
) -> Trial:
    """θ's own temperature from draws of `spread` times the target's variance: is it hot?"""

    def trial(g: torch.Generator) -> bool:
        common = torch.randn(1, size, generator=g)
        own = torch.randn(count, size, generator=g)
        theta = spread**0.5 * (correlation**0.5 * common + (1 - correlation) ** 0.5 * own)
        slopes = theta + noise * torch.randn(count, size, generator=g)
        verdict = pair_temperature(theta, slopes, [0] * count).verdict(1.0)
        return verdict == ("near copies" if correlation else "hot")

    return trial


def coupled(claim: float, size: int, kind: str, variance: float = 0.0) -> Trial:
    """The coupling thermometer on a chain with noise of `claim` times T and mini-batches of V."""

    def trial(g: torch.Generator) -> bool:
        param = nn.Parameter(torch.zeros(size))
        seed = int(torch.randint(2**31, (1,), generator=g))
        sampler = EntropyMCMC([param], lr=0.5, num_data=10, eta=0.25, temperature=1.0, seed=seed)
        thermometer = Thermometer(sampler)
        for _ in range(30):
            param.grad = variance**0.5 / 10 * torch.randn(size, generator=g)
            sampler.param_groups[0]["temperature"] = claim
            sampler.step()
            sampler.param_groups[0]["temperature"] = 1.0
            thermometer.step()
        thermometer.read()
        return judge(thermometer.readings, variance).kind == kind

    return trial


def worth_few(count: int, correlation: float) -> Trial:
    """The note on ESS, for draws of one chain with autocorrelation."""

    def trial(g: torch.Generator) -> bool:
        values = np.empty((count, 5))
        noise = torch.randn(count, 5, generator=g).numpy()
        values[0] = noise[0]
        for t in range(1, count):
            values[t] = correlation * values[t - 1] + (1 - correlation**2) ** 0.5 * noise[t]
        mixed = mixing([values]).ess
        return mixed is not None and mixed[1] < FEW * count

    return trial


def moved(scale: float) -> Trial:
    """Near copies by predicted probability, where no gradient was taken."""
    from entropy_mcmc.diagnostics import moved_probability

    def trial(g: torch.Generator) -> bool:
        logits = torch.randn(1, 50, 3, generator=g) + scale * torch.randn(4, 50, 3, generator=g)
        share = moved_probability(logits.softmax(2), [0] * 4)
        return share is not None and share < MOVED

    return trial


def rows() -> Iterator[Row]:
    """Every verdict that can be wrong by chance."""
    name = "chains (cycles, halves) differ"
    for chains, each in ((2, 5), (2, 10), (4, 4), (4, 10), (4, 50)):
        yield Row(
            name, f"{chains} × {each} independent draws", False, differing(chains, each, 0.0), 500
        )
    yield Row(name, "2 × 10, log-normal", False, differing(2, 10, 0.0, "log-normal"), 500)
    yield Row(name, "2 × 10, one prediction", False, differing(2, 10, 0.0, "copies"), 500)
    yield Row(name, "halves of 10 independent draws", False, differing(1, 10, 0.0), 500)
    yield Row(name, "halves of 20 independent draws", False, differing(1, 20, 0.0), 500)
    for chains, each in ((2, 5), (2, 10), (4, 4), (4, 10)):
        for apart in (1.0, 5.0):
            yield Row(
                name,
                f"{chains} × {each}, centres {apart:g} sd apart",
                True,
                differing(chains, each, apart),
                200,
            )
    name = "θ is hotter than T"
    for count, size in ((4, 100), (8, 500), (16, 10_000)):
        yield Row(
            name, f"{count} draws of {size:,} weights at T", False, drawn(1.0, count, size), 400
        )
        for factor in (1.2, 2.05):
            yield Row(
                name,
                f"{count} draws of {size:,}, variance {factor} times",
                True,
                drawn(factor, count, size),
                200,
            )
    yield Row(name, "8 draws of 1,000, noisy gradients", False, drawn(1.0, 8, 1000, noise=3.0), 400)
    name = "near copies (gradients)"
    yield Row(name, "8 draws of 1,000, correlation 0.5", False, drawn(1.0, 8, 1000, 0.5), 400)
    yield Row(name, "8 draws of 1,000, correlation 0.95", True, drawn(1.0, 8, 1000, 0.95), 200)
    name = "near copies (predictions)"
    yield Row(name, "logits 0.3 sd apart", False, moved(0.3), 400)
    yield Row(name, "logits 0.01 sd apart", True, moved(0.01), 200)
    name = "injected noise hot or cold"
    for kind in ("hot", "cold"):
        yield Row(name, f"2,000 weights at T ({kind})", False, coupled(1.0, 2000, kind), 200)
    yield Row(name, "2,000 weights, 20 % too hot", True, coupled(1.2, 2000, "hot"), 100)
    yield Row(name, "2,000 weights, 20 % too cold", True, coupled(0.8, 2000, "cold"), 100)
    name, kind = "mini-batches add heat", "mini-batch heat"
    yield Row(name, "2,000 weights, V = 0", False, coupled(1.0, 2000, kind), 200)
    yield Row(name, "2,000 weights, αV/4 = T/5", True, coupled(1.0, 2000, kind, 16.0), 100)
    name = "draws worth few"
    for count in (12, 24, 48, 100):
        yield Row(name, f"{count} independent draws", False, worth_few(count, 0.0), 200)
        yield Row(name, f"{count} draws, autocorrelation 0.95", True, worth_few(count, 0.95), 50)


def measure(row: Row, share: float) -> str:
    """A line of the table."""
    g = torch.Generator().manual_seed(0)
    trials = max(20, round(row.trials * share))
    hits = sum(row.trial(g) for _ in range(trials))
    kind = "found" if row.fault else "false alarm"
    return f"| {row.verdict} | {row.tried_on} | {kind} | {hits / trials:.1%} | {trials} |"


def table(share: float) -> Iterator[str]:
    """The table, line by line."""
    yield "| verdict | tried on | which is a | rate | trials |"
    yield "|---|---|---|---|---|"
    for row in rows():
        yield measure(row, share)


def main() -> None:
    """Measure, print, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials, printed only")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    lines = []
    for line in table(0.1 if quick else 1.0):
        print(line, flush=True)
        lines.append(line)
    if not quick:
        text = PAGE.read_text(encoding="utf-8")
        made = START + "\n" + "\n".join(lines) + "\n\n" + END
        PAGE.write_text(
            re.sub(f"{START}.*?{END}", lambda _: made, text, flags=re.S), encoding="utf-8"
        )


if __name__ == "__main__":
    main()

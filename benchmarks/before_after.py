"""Two versions of the library, measured in turns: is the new one slower?

    python benchmarks/before_after.py OLD NEW [--rounds 7]   # git revisions, or src folders
    python benchmarks/before_after.py --render               # the page, from the file

Each round starts one process per version, in changing order, so that both see the same machine. A
row is the processor time of the new version over that of the old one: median and quartiles over
the rounds. Writes results/benchmarks/before-after.json and the table of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "results/benchmarks/before-after.json", ROOT / "docs/benchmarks.md"
MARKS = ("<!-- table: written by benchmarks/before_after.py --render -->", "<!-- end of table -->")
STEPS = 300
Times = dict[str, float]


def timed(action: Callable[[], object], count: int) -> float:
    """Best processor time of five goes, so that a busy neighbour counts less."""
    goes = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(count // 5):
            action()
        goes.append(time.process_time() - start)
    return min(goes)


def import_times() -> Times:
    start = time.process_time()
    import torch

    base = time.process_time()
    import entropy_mcmc

    assert entropy_mcmc.__version__
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return {"import, torch included": time.process_time() - start, "torch": base - start}


def step_times() -> Times:
    import torch

    from entropy_mcmc import SGLD, EntropyMCMC

    def of(shapes: list[tuple[int, ...]], kind: type, **settings: object) -> float:
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        for p in params:
            p.grad = torch.randn_like(p)
        sampler = kind(params, lr=0.1, num_data=1000, seed=0, **settings)
        for _ in range(5):
            sampler.step()
        return timed(sampler.step, STEPS)

    small = [(40, 40), (40,)] * 31
    mlp = [(256, 784), (256,), (256, 256), (256,), (10, 256), (10,)]
    return {
        "step, 62 small tensors, EMCMC": of(small, EntropyMCMC, eta=0.01),
        "step, 62 small tensors, SGLD": of(small, SGLD),
        "step, MLP, EMCMC eager": of(mlp, EntropyMCMC, eta=0.01, fused=False),
        "step, MLP, EMCMC compiled": of(mlp, EntropyMCMC, eta=0.01, fused=True),
    }


def chain_times() -> Times:
    import torch

    from entropy_mcmc import chains

    x, y = torch.randn(2000, 50), torch.randint(2, (2000,)).float()

    def energy(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y)

    def run() -> object:
        return chains.run(
            energy, torch.zeros(50), steps=60, lr=0.1, chains=16, data=(x, y), batch_size=64,
            num_data=2000, eta=0.01, seed=0, compile=False,
        )  # fmt: skip

    return {"16 chains, 60 steps, eager": timed(run, 10)}


def epoch_times() -> Times:
    """An epoch of a training loop as the README has it: 1,437 rows of digits' shape, batch 32."""
    import torch
    from torch.nn import functional as F

    from entropy_mcmc import EntropyMCMC, schedules

    rows = 1437
    x, y = torch.randn(rows, 64), torch.randint(10, (rows,))
    net = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
    sampler = EntropyMCMC(net.parameters(), lr=0.05, num_data=rows, eta=0.01, seed=0)
    cycle = schedules.Cyclical(sampler, total_steps=10**6, cycles=1)

    def epoch() -> None:
        for part in torch.randperm(rows).split(32):
            loss = F.cross_entropy(net(x[part]), y[part])
            sampler.zero_grad()
            loss.backward()
            sampler.step()
            cycle.step()

    epoch()
    return {"epoch of a loop, small MLP, EMCMC": timed(epoch, 10)}


def measure() -> Times:
    return {**import_times(), **step_times(), **chain_times(), **epoch_times()}


@contextmanager
def source(version: str) -> Iterator[tuple[str, str]]:
    """Folder to import a version from, and its commit."""
    if (Path(version) / "entropy_mcmc").is_dir():
        yield str(Path(version).resolve()), git("rev-parse", "--short", "HEAD", where=Path(version))
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", version, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield f"{folder}/src", git("rev-parse", "--short", version, where=ROOT)


def git(*words: str, where: Path) -> str:
    return subprocess.run(
        ["git", *words], cwd=where, check=True, capture_output=True, text=True
    ).stdout.strip()


def in_turns(folders: tuple[str, str], rounds: int) -> tuple[list[Times], list[Times]]:
    """Times of the old and of the new version, a process for each in every round."""
    times: tuple[list[Times], list[Times]] = ([], [])
    for i in range(rounds):
        for which in (0, 1) if i % 2 else (1, 0):
            env = {**os.environ, "PYTHONPATH": folders[which], "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "--measure"]
            done = subprocess.run(command, env=env, check=True, text=True, stdout=subprocess.PIPE)
            times[which].append(json.loads(done.stdout))
            print(f"round {i + 1} of {rounds}: {('old', 'new')[which]}", file=sys.stderr)
    return times


def compared(old: list[Times], new: list[Times]) -> list[dict[str, Any]]:
    """Rows of the table: seconds of both, and the ratios of the rounds."""
    rows = []
    for name in old[0]:
        if name == "torch":
            continue
        ratios = [b[name] / a[name] for a, b in zip(old, new, strict=True)]
        low, _, high = quantiles(ratios) if len(ratios) > 1 else ratios * 3
        seconds = {
            "old_s": median(r[name] for r in old),
            "new_s": median(r[name] for r in new),
        }
        rows.append({"what": name, "ratio": median(ratios), "quartiles": [low, high], **seconds})
    return rows


def table(result: dict[str, Any]) -> str:
    """Markdown of a result."""
    lines = [
        f"Commit {result['new']} against {result['old']}, processor time of one thread, "
        f"{result['rounds']} rounds; {result['date']}, {result['machine']}, "
        f"torch {result['torch']}.",
        "",
        "| what | new / old | quartiles |",
        "|---|--:|--:|",
    ]
    for row in result["rows"]:
        low, high = row["quartiles"]
        lines.append(f"| {row['what']} | {row['ratio']:.3f} | {low:.3f} to {high:.3f} |")
    over = result["import_over_torch"]
    return "\n".join([*lines, "", f"`import entropy_mcmc` takes {over:.2f} times `import torch`."])


def render() -> None:
    head, rest = PAGE.read_text().split(MARKS[0])
    tail = rest.split(MARKS[1], 1)[1]
    text = table(json.loads(RESULT.read_text()))
    PAGE.write_text(f"{head}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", help="the old and the new one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--measure", action="store_true", help="the version that is imported")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure()))
        return
    if not given.render:
        if len(given.versions) != 2:
            parser.error(f"give two versions, the old and the new one, got {given.versions}")
        RESULT.write_text(json.dumps(result_of(*given.versions, given.rounds), indent=1) + "\n")
    render()
    print(table(json.loads(RESULT.read_text())))


def result_of(before: str, after: str, rounds: int) -> dict[str, Any]:
    """All that the page and a later reader need."""
    from importlib.metadata import version

    with source(before) as (old_folder, old_commit), source(after) as (new_folder, new_commit):
        old, new = in_turns((old_folder, new_folder), rounds)
    return {
        "command": f"python benchmarks/before_after.py {before} {after} --rounds {rounds}",
        **{"old": old_commit, "new": new_commit, "rounds": rounds, "torch": version("torch")},
        **{"date": date.today().isoformat(), "machine": f"{platform.system()}, {cores()} cores"},
        "rows": compared(old, new),
        "import_over_torch": median(r["import, torch included"] / r["torch"] for r in new),
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()

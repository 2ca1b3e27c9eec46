"""All benchmarks of speed in one command: tables, one JSON file per benchmark, and the page.

python benchmarks/run.py [--only step chains …] [--quick] [--cpu-time] [--out results/benchmarks]
python benchmarks/run.py --render        # the tables of docs/benchmarks.md from those files
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import timing

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
RESULTS = HERE.parent / "results" / "benchmarks"
MARKS = ("<!-- tables: written by benchmarks/run.py --render -->", "<!-- end of tables -->")
PACKAGES = ("torch", "numpy", "posteriors", "jax", "jaxlib", "blackjax")

COMMANDS = {
    "step": ("step.py", "--part", "step"),
    "fixed": ("step.py", "--part", "fixed"),
    "mlp": ("step.py", "--part", "mlp"),
    "resnet": ("step.py", "--part", "resnet"),
    "chains-1-thread": ("chains.py", "--threads", "1"),
    "chains": ("chains.py",),
    "scaling": ("scaling.py",),
    "stacked": ("small.py", "--part", "stacked"),
    "runs": ("small.py", "--part", "runs"),
    "refresh": ("small.py", "--part", "refresh"),
    "predict": ("predictions.py",),
    "paths": ("small.py", "--part", "paths"),
    "import": ("whole.py", "--part", "import"),
    "command": ("whole.py", "--part", "command"),
    "compile": ("whole.py", "--part", "compile"),
    "memory": ("whole.py", "--part", "memory"),
}
QUICK = {"resnet": ("--repeats", "1"), "scaling": ("--largest", "7")}


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """Model name as Linux gives it, or what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def call(command: list[str]) -> dict[str, Any]:
    """Run one benchmark in its own process and read the JSON that it prints last."""
    run = [sys.executable, str(HERE / command[0]), *command[1:]]
    text = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: dict[str, Any] = json.loads(text[text.index("{\n") :])
    return measured


def measure(name: str, extra: list[str], out: Path) -> dict[str, Any]:
    """One benchmark with everything needed to read its numbers later, as a file."""
    command = [*COMMANDS[name], *extra]
    began = time.time()
    measured = call(command)
    result = {
        "name": name,
        "command": " ".join(["python", f"benchmarks/{command[0]}", *command[1:]]),
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": round(time.time() - began),
        "machine": f"{platform.system()} {platform.machine()}, {processor()}",
        "versions": {package: version(package) for package in PACKAGES},
        **measured,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


def saved(out: Path) -> list[dict[str, Any]]:
    """Results that were measured before, in the order of `COMMANDS`."""
    files = [out / f"{name}.json" for name in COMMANDS]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def tables(results: list[dict[str, Any]]) -> str:
    """Markdown: where and when, all ratios, and the cost by size."""
    blocks = []
    for result in results:
        threads = f"{result['threads']} thread" + ("s" if result["threads"] > 1 else "")
        clock = "CPU time" if result["cpu_time"] else "wall clock"
        versions = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
        blocks.append(f"### {result['name']}\n`{result['command']}`, {threads}, {clock}, "
                      f"{result['date']}, {result['machine']}; {versions}.")  # fmt: skip
        blocks.append(timing.table(result["rows"]))
        if "one" in result:
            blocks.append(profile_table(result))
        if result.get("shared"):
            blocks.append(shared_table(result["shared"]))
        if "profiles" in result:
            blocks.append(timing.profile_table(result["profiles"], result["profile_of"]))
        if "scaling" in result:
            blocks.append(scaling_table(result["scaling"]))
    return "\n\n".join(blocks)


def profile_table(result: dict[str, Any]) -> str:
    """Where a chain-step of our SGLD spends its time, beside the others' whole."""
    parts = list(result["one"]["our_sgld_us_per_chain_step"])
    names = ["blackjax sgld", "ours emcmc", "ours sgld", "floor"]
    lines = [
        f"| µs per chain-step | {' | '.join([*names, *(f'of ours sgld: {p}' for p in parts)])} |",
        "|---|" + "---|" * (len(names) + len(parts)),
    ]
    for label, key in (("1 chain", "one"), ("64 chains", "many")):
        speeds, spent = (
            result[key][k] for k in ("chain_steps_per_second", "our_sgld_us_per_chain_step")
        )
        whole = [f"{1e6 / speeds[n]:.1f}" if n in speeds else "–" for n in names]
        lines.append(f"| {label} | {' | '.join([*whole, *(f'{spent[p]:.1f}' for p in parts)])} |")
    return "\n".join(lines)


def shared_table(shared: dict[str, Any]) -> str:
    """The same for 64 chains with one batch; `products` are its two matrix products alone."""
    whole, parts = shared["us_per_chain_step"], shared["of_ours"]
    names = {"own": "blackjax, own batches", "shared": "blackjax, shared batch"}
    heads = [names.get(name, name) for name in whole] + [f"of ours: {part}" for part in parts]
    numbers = " | ".join(f"{value:.1f}" for value in [*whole.values(), *parts.values()])
    return (
        f"| µs per chain-step, shared batch | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}\n"
        f"| 64 chains | {numbers} |"
    )


def scaling_table(rows: list[dict[str, float]]) -> str:
    lines = [
        "| parameters | ms per step | ns per parameter | extra peak MiB |",
        "|---|---|---|---|",
    ]
    for r in rows:
        numbers = f"{r['median_ms']:.2f} | {r['ns_per_parameter']:.2f} | {r['extra_peak_mib']:.1f}"
        lines.append(f"| {r['parameters']:,} | {numbers} |")
    return "\n".join(lines)


def render(out: Path, page: Path) -> None:
    """Replace what stands between the marks of the page by the tables."""
    text = page.read_text()
    head, rest = text.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    page.write_text(f"{head}{MARKS[0]}\n\n{tables(saved(out))}\n\n{MARKS[1]}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--quick", action="store_true", help="few repeats, no 10^8 parameters")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: CPU seconds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page")
    given = parser.parse_args()
    if given.render:
        render(given.out, PAGE)
        return
    busy = ["--cpu-time"] if given.cpu_time else []
    failed = []
    for name in given.only:
        quick = list(QUICK.get(name, ("--repeats", "3"))) if given.quick else []
        try:
            print(tables([measure(name, [*quick, *busy], given.out)]), end="\n\n", flush=True)
        except (subprocess.CalledProcessError, ValueError) as error:  # the others still count
            print(f"{name} failed: {error}", file=sys.stderr, flush=True)
            failed.append(name)
    if given.out == RESULTS:
        render(given.out, PAGE)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

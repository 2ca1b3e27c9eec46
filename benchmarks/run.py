"""All benchmarks of speed in one command: a table, and JSON beside it.

python benchmarks/run.py [--quick] [--cpu-time] [--out results/benchmarks.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import timing
import torch

HERE = Path(__file__).parent


def call(name: str, *options: str) -> dict[str, Any]:
    """Run one benchmark in its own process and read the JSON that it prints last."""
    command = [sys.executable, str(HERE / name), *options]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(text[text.index("{\n") :])
    return found


def ratios(node: Any) -> list[timing.Row]:
    """All rows of ratios inside the results, in order."""
    if not isinstance(node, dict):
        return []
    own: list[timing.Row] = node.get("rows", [])
    return [*own, *(row for value in node.values() for row in ratios(value))]


def scaling_table(rows: list[dict[str, float]]) -> str:
    lines = [
        "| parameters | ms per step | ns per parameter | extra peak MiB |",
        "|---|---|---|---|",
    ]
    for r in rows:
        numbers = f"{r['median_ms']:.2f} | {r['ns_per_parameter']:.2f} | {r['extra_peak_mib']:.1f}"
        lines.append(f"| {r['parameters']:,} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats, no ResNet training")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: CPU seconds")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks.json"))
    given = parser.parse_args()
    quick = ["--repeats", "3"] if given.quick else []
    busy = ["--cpu-time"] if given.cpu_time else []
    results = {
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "step": call("step.py", *(quick or ["--train"]), *busy),
        "chains": call("chains.py", *quick, *busy),
        "scaling": call("scaling.py", *(["--largest", "7"] if given.quick else []), *busy),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    print(timing.table(ratios(results)), scaling_table(results["scaling"]["scaling"]), sep="\n\n")


if __name__ == "__main__":
    main()

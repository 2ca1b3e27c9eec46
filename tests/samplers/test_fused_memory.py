"""A fused step needs no memory of its own: the benchmark at a tenth of its size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCALING = Path(__file__).parents[2] / "benchmarks" / "scaling.py"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the peak from /proc")
def test_a_fused_step_allocates_less_than_half_of_a_copy():
    """At 10^7 parameters one temporary of their size would be 38 MiB; the limit at 10^8 is 64."""
    command = [sys.executable, str(SCALING), "--size", str(10**7)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert report["held_mib"] > 114
    assert report["extra_peak_mib"] < 16

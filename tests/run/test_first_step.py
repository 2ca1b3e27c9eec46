"""What happens before the first step of `emcmc sample`: a line at once, and no slow import."""

import subprocess
import sys

SCRIPT = """
import sys
from entropy_mcmc.cli import main

class FirstStep(Exception):
    pass

def stop(self):
    raise FirstStep

def watch(event, arguments):
    if event == "import" and arguments[0] == "torch":
        print("torch is imported", file=sys.stderr)

sys.addaudithook(watch)
from entropy_mcmc.run import config
import entropy_mcmc.cli as cli
greet = cli._greet

def after(*given):
    greet(*given)
    from entropy_mcmc.run.chain import Chain
    Chain.advance = stop

cli._greet = after
try:
    main(["sample", "--run_dir", sys.argv[1], "--compute.accelerator", "cpu"])
except FirstStep:
    slow = ("lightning_fabric", "torch._dynamo", "sklearn", "scipy", "pandas", "matplotlib")
    print(*[name for name in slow if name in sys.modules], "end")
"""


def test_a_line_comes_first_and_nothing_slow_is_imported(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "end\n"
    assert run.stderr.splitlines()[:2] == [
        f"emcmc on digits: starts in {tmp_path}",
        "torch is imported",
    ]

"""A run with a baseline, its scores, its diagnosis and its page read the data once."""

from entropy_mcmc.cli import main
from run import workers

CALLS = []


def counted_data():
    """The tiny data, and a note that they were read."""
    CALLS.append(1)
    return workers.tiny_data()


def test_the_data_are_read_once(tmp_path, capsys):
    flags = {
        "run_dir": tmp_path / "run",
        "data.name": f"{__name__}:counted_data",
        "data.batch_size": 16,
        "model.name": "run.workers:tiny_model",
        "schedule.epochs": 4,
        "schedule.cycles": 1,
        "sampler.fused": "no",
        "compute.accelerator": "cpu",
        "output.progress": "false",
        "output.baseline": "sgd",
    }
    CALLS.clear()
    assert main(["sample", *(f"--{name}={value}" for name, value in flags.items())]) == 0
    assert "sgd" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()
    assert len(CALLS) == 1

"""A run with a baseline, its scores, its diagnosis and its page are built from one description."""

import importlib

from entropy_mcmc.cli import main
from run import workers

CALLS = []
NETWORKS = []


def counted_data():
    """The tiny data, and a note that they were read."""
    CALLS.append(1)
    return workers.tiny_data()


def counted_model():
    """The tiny network, and a note that one was built."""
    NETWORKS.append(1)
    return workers.tiny_model()


def count_problems(monkeypatch):
    """A list that grows by one for each description of model and data that is built."""
    built = []
    for name in ("runner", "loaded_run"):
        module = importlib.import_module(f"entropy_mcmc.run.{name}")
        real = module.build_problem
        counted = lambda *given, real=real, **named: built.append(1) or real(*given, **named)  # noqa: E731
        monkeypatch.setattr(module, "build_problem", counted)
    return built


def test_model_and_data_are_described_once(tmp_path, capsys, monkeypatch):
    """The data are read once, and networks are built as often as one is trained: twice."""
    flags = {
        "run_dir": tmp_path / "run",
        "data.name": f"{__name__}:counted_data",
        "data.batch_size": 16,
        "model.name": f"{__name__}:counted_model",
        "schedule.epochs": 4,
        "schedule.cycles": 1,
        "sampler.fused": "no",
        "compute.accelerator": "cpu",
        "output.progress": "false",
        "output.baseline": "sgd",
    }
    CALLS.clear()
    NETWORKS.clear()
    built = count_problems(monkeypatch)
    assert main(["sample", *(f"--{name}={value}" for name, value in flags.items())]) == 0
    assert "sgd" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()
    assert (len(CALLS), len(NETWORKS), len(built)) == (1, 2, 1)

"""The benchmarks are no part of the wheel: these tests load their packages from their folders.

Only the packages: with the whole of benchmarks/ on the path, its run.py would stand for tests/run.
"""

import sys
from importlib import util
from pathlib import Path

import pytest
import torch

for NAME in ("tabular", "effective", "replicated"):
    if NAME not in sys.modules:
        SOURCE = Path(__file__).parents[2] / "benchmarks" / NAME / "__init__.py"
        SPEC = util.spec_from_file_location(
            NAME, SOURCE, submodule_search_locations=[str(SOURCE.parent)]
        )
        sys.modules[NAME] = util.module_from_spec(SPEC)
        SPEC.loader.exec_module(sys.modules[NAME])


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """As the workers have."""


@pytest.fixture
def tiny(monkeypatch):
    """A table task whose runs take milliseconds, and one with batch norm and OOD rows."""
    from tournament import data, tasks, trajectory

    def rows(seed):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(120, 3, generator=generator)
        return data.table(x, (x[:, 0] + x[:, 1] > 0).long(), seed)

    def with_ood(seed):
        split = rows(seed)
        return data.Data(split.train, split.validation, split.test, (3 + split.test.x,))

    def normed():
        return torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
        )

    def plain():
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))

    made = {
        task.name: task
        for task in (
            tasks.Task("tiny", "development", rows, 72, plain, 8, 8, 2),
            tasks.Task("tiny-bn", "development", with_ood, 72, normed, 8, 8, 2),
            tasks.Task("tiny-start", "development", rows, 72, plain, 4, 8, 2, start=4),
        )
    }
    monkeypatch.setattr(tasks, "TASKS", made)
    monkeypatch.setattr(trajectory, "TASKS", made)
    trajectory.data_of.cache_clear()
    trajectory._started.cache_clear()
    return made

"""Shared fixtures: the device of the run, and one thread so that results repeat."""

import os

# Some virtual machines announce AMX and refuse it: bfloat16 products then end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def pytest_collection_modifyitems(config, items):
    """Leave soak tests out unless they were asked for with `-m soak`."""
    if config.getoption("-m"):
        return
    skip = pytest.mark.skip(reason="soak test: run by `make soak`")
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def one_thread():
    """Sums of several threads are other sums, and cost more for networks this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES)
def device(request):
    """Every device of this machine, so that the suite runs on a GPU unchanged."""
    return torch.device(request.param)


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real data sets, or a visible skip."""
    folder = os.environ.get("EMCMC_DATA")
    if not folder:
        pytest.skip("EMCMC_DATA is not set: the real data sets are not here")
    return folder

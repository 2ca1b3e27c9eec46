"""Every sampler gives, bit for bit, the states in `golden/samplers.json`, taken before."""

import json

import pytest
import torch

from golden_samplers import FILE, cases, environment, run

GOLDEN = json.loads(FILE.read_text())
EAGER = {key: case for key, case in cases().items() if not case[2]}
COMPILED = {key: case for key, case in cases().items() if case[2]}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def needs(*names):
    here, there = environment(), GOLDEN["environment"]
    differing = [f"{name} {there[name]}" for name in names if here[name] != there[name]]
    if differing:
        pytest.skip(f"the hashes were taken with {', '.join(differing)}")


def test_every_case_has_a_hash():
    assert set(cases()) == set(GOLDEN["hashes"])


@pytest.mark.parametrize("key", EAGER)
def test_eager_steps_are_bit_for_bit_as_before(key):
    needs("torch", "cpu")
    assert run(*EAGER[key]) == GOLDEN["hashes"][key]


@pytest.mark.soak
@pytest.mark.parametrize("key", COMPILED)
def test_compiled_steps_are_bit_for_bit_as_before(key):
    needs("torch", "cpu", "compiler")
    assert run(*COMPILED[key]) == GOLDEN["hashes"][key]

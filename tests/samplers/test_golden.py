"""Every sampler gives, bit for bit, the states in `golden/samplers*.json`, taken before."""

import json

import pytest

from golden_samplers import FILES, cases, environment, run

RECORDS = [json.loads(file.read_text()) for file in FILES]
EAGER = {key: case for key, case in cases().items() if not case[2]}
COMPILED = {key: case for key, case in cases().items() if case[2]}


pytestmark = pytest.mark.usefixtures("one_thread")


def recorded(key, *names):
    """The hash of a case that was taken where these parts of the environment were the same."""
    here = environment()
    for record in RECORDS:
        if key in record["hashes"] and all(record["environment"][n] == here[n] for n in names):
            return record["hashes"][key]
    return pytest.skip(f"no hash was taken with {', '.join(f'{n} {here[n]}' for n in names)}")


def test_every_case_has_a_hash():
    assert set(cases()) == set().union(*(record["hashes"] for record in RECORDS))


@pytest.mark.parametrize("key", EAGER)
def test_eager_steps_are_bit_for_bit_as_before(key):
    before = recorded(key, "torch", "cpu", "processor")
    assert run(*EAGER[key]) == before


@pytest.mark.soak
@pytest.mark.parametrize("key", COMPILED)
def test_compiled_steps_are_bit_for_bit_as_before(key):
    before = recorded(key, "torch", "cpu", "processor", "compiler")
    assert run(*COMPILED[key]) == before

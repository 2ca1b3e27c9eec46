"""The mutation check as a test: the six mutants that the issue names, and ours."""

import pytest

import mutations


@pytest.mark.timeout(900)
def test_every_mutant_is_caught():
    assert mutations.main(list(mutations.MUTANTS)) == 0

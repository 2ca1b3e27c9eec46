"""The mutation check as a test: each deliberate break of a sampler is caught."""

import pytest

import mutations


@pytest.mark.parametrize("name", mutations.MUTANTS)
def test_the_text_that_a_mutant_breaks_is_there_once(name):
    """In milliseconds, so that whoever edits a rule sees at once which mutant to mend."""
    assert not mutations.stale(name)


@pytest.mark.timeout(900)
def test_every_mutant_is_caught(capsys):
    missed = mutations.main(list(mutations.MUTANTS))
    assert missed == 0, capsys.readouterr().out

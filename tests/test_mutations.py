"""The mutation check as a test: each deliberate break of a sampler is caught."""

import pytest

import mutations

# The mistakes that other libraries have made; `make soak` has the rest.
CLASSIC = (
    *("missing sqrt 2", "decay on the guide", "shared noise"),
    *("N forgotten in the noise", "noise through momentum"),
)


@pytest.mark.parametrize("name", mutations.MUTANTS)
def test_the_text_that_a_mutant_breaks_is_there_once(name):
    """In milliseconds, so that whoever edits a rule sees at once which mutant to mend."""
    assert not mutations.stale(name)


@pytest.mark.timeout(900)
def test_the_classic_mutants_are_caught(capsys):
    missed = mutations.main(list(CLASSIC))
    assert missed == 0, capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_other_mutant_is_caught(capsys):
    missed = mutations.main([name for name in mutations.MUTANTS if name not in CLASSIC])
    assert missed == 0, capsys.readouterr().out

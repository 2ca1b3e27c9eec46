"""docs/choosing.md names the values that the code has."""

import re
from pathlib import Path

import pytest

from entropy_mcmc import recipes
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor

PAGE = (Path(__file__).parents[2] / "docs/choosing.md").read_text()


def row(name):
    """The cells of a row of the table of values."""
    return [cell.strip() for cell in re.search(rf"^\| {name} \|(.*)\|$", PAGE, re.M)[1].split("|")]


@pytest.mark.parametrize(
    ("column", "estimator"), [(0, EntropyMCMCClassifier()), (1, EntropyMCMCRegressor())]
)
def test_values_of_the_estimators(column, estimator):
    has = estimator.get_params()
    assert float(row("lr")[column]) == has["lr"]
    assert float(row("momentum")[column]) == has["momentum"]
    heat = row("T")[column]
    assert ("auto" if heat == "chosen on held-out rows" else float(heat)) == has["temperature"]
    assert float(row(re.escape("guide's horizon ηN/lr"))[column]) == has["guide_horizon"]
    chains, samples = row(re.escape("chains or cycles × samples"))[column].split(" × ")
    assert (int(chains), int(samples)) == (has["n_chains"], has["n_samples"])
    assert row("burn-in")[column] == has["burn_in"]
    assert has["prior_variance"] == "auto"


def test_every_recipe_of_the_page_exists():
    named = set(re.findall(r"`recipes\.(\w+)`", PAGE))
    assert named == {"from_scratch", "short_chains", "from_trained", "adapters"}
    assert all(callable(getattr(recipes, name)) for name in named)

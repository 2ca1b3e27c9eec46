"""The list of tables and its halves: fixed before anything was tuned on them."""

import hashlib
from collections import Counter
from importlib import util

import numpy as np
import pandas as pd
import pytest
from tabular import loaders, split
from tabular.catalogue import CLASSIFICATION, REGRESSION, TABLES, Table

# The names of the confirmation half, hashed: a table that moves or is renamed changes it.
CONFIRMATION = "9f5fbb74b3bc023f"


def test_names_are_unique_and_both_halves_are_large():
    assert len(TABLES) == len(CLASSIFICATION) + len(REGRESSION)
    counts = Counter((table.task, table.half) for table in TABLES.values())
    assert counts["classification", "confirmation"] >= 30
    assert counts["regression", "confirmation"] >= 15
    assert counts["classification", "development"] >= 30


def test_the_confirmation_half_is_the_one_that_was_fixed():
    names = sorted(name for name, table in TABLES.items() if table.half == "confirmation")
    assert hashlib.sha256(" ".join(names).encode()).hexdigest()[:16] == CONFIRMATION


def test_tables_that_were_tuned_on_before_are_development():
    assert all(TABLES[name].half == "development" for name in split.SEEN)
    assert all(table.half == "development" for table in REGRESSION if table.source == "uci")


def test_a_frame_keeps_categories_and_missing_values(monkeypatch):
    made = pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0, 4.0],
            "colour": ["red", None, "green", "blue"],
            "code": [1, 2, 1, 3],
            "leak": [1, 0, 1, 0],
            "kind": ["a", "b", None, "a"],
        }
    )
    table = Table("made", "classification", "made", "", "kind", ("leak",), ("code",))
    monkeypatch.setitem(loaders.TABLES, "made", table)
    monkeypatch.setitem(loaders.READERS, "made", lambda _: made.copy())
    x, y = loaders.load("made")
    assert list(x.columns) == ["size", "colour", "code"]
    assert y.tolist() == ["a", "b", "a"]
    assert x["colour"].cat.categories.tolist() == ["blue", "red"]
    assert x["code"].astype(object).tolist() == ["1", "2", "3"]
    assert x.isna().sum().tolist() == [1, 1, 0]


def test_a_package_that_is_missing_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"no_such_package.*data-packages.txt"):
        loaders.folder_of("no_such_package")


@pytest.mark.parametrize("source", sorted({table.source for table in TABLES.values()} - {"uci"}))
def test_tables_load(source):
    module = loaders.MODULES.get(source, source)
    if source != "scikit-learn" and util.find_spec(module) is None:
        pytest.skip(f"{source} is not installed")
    for name, table in TABLES.items():
        if table.source != source:
            continue
        x, y = loaders.load(name)
        assert len(x) == len(y) >= 90, name
        assert y.notna().all(), name
        assert table.target not in x.columns, name
        assert table.task == "regression" or y.nunique() >= 2, name

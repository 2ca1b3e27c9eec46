"""The page of `benchmarks/tables.py`: results/tables → docs/tabular.md, its picture, the README.

python benchmarks/tables_page.py
"""

from __future__ import annotations

from tabular import picture, readme
from tabular.page import PAGE, PICTURE, render

if __name__ == "__main__":
    picture.draw(PICTURE)
    PAGE.write_text(render())
    readme.write()

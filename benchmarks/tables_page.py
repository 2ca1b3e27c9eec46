"""The page of `benchmarks/tables.py`: results/tables/*.json → docs/tabular.md.

python benchmarks/tables_page.py
"""

from __future__ import annotations

from tabular.page import PAGE, render

if __name__ == "__main__":
    PAGE.write_text(render())

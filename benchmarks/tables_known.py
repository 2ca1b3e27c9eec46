"""Made tables whose truth is known: `tabular/known.py` → results/tables-known.json.

python benchmarks/tables_known.py [weak noise thirds outlier conformal times predict size]
"""

from __future__ import annotations

import sys

from tabular.known import main

if __name__ == "__main__":
    main(sys.argv[1:])

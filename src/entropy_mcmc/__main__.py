"""`python -m entropy_mcmc` is `emcmc`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` puts the working folder first: what lies there must not stand for a library.
    sys.path[:] = [place for place in sys.path if place not in ("", str(Path.cwd()))]

    from entropy_mcmc.cli import main

    sys.exit(main())

"""`python -m entropy_mcmc` is `emcmc`."""

import sys

from entropy_mcmc.cli import main

if __name__ == "__main__":
    sys.exit(main())

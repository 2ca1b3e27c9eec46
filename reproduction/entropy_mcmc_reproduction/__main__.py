"""`python -m entropy_mcmc_reproduction` is `emcmc reproduce`."""

import sys

from entropy_mcmc.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))

"""Draw docs/pictures/report-light.png: the top of the page of `emcmc sample` on the digits.

Usage: python docs/pictures/report.py (needs playwright and Chromium)
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "report-light.png"
COMMAND = [sys.executable, "-m", "entropy_mcmc", "sample", "--output.baseline", "sgd"]
CHROMIUM = Path("/usr/bin/chromium")  # where playwright has none of its own


def main() -> None:
    """Run with the defaults, and photograph what the page shows first."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "digits-emcmc"
        subprocess.run([*COMMAND, "--run_dir", str(run)], check=True)
        with sync_playwright() as tools:
            own = {"executable_path": str(CHROMIUM)} if CHROMIUM.exists() else {}
            browser = tools.chromium.launch(args=["--no-sandbox"], **own)
            page = browser.new_page(viewport={"width": 1280, "height": 1180}, color_scheme="light")
            page.goto((run / "report.html").as_uri())
            page.screenshot(path=PICTURE)
            browser.close()


if __name__ == "__main__":
    main()

"""Saves an image of the console: `python -m scripts.console_screenshot APP FILE` shows the app of a running instance.

Needs Chromium.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

WIDTH: Final = 1280
SETTLING: Final = 4_000
"""Milliseconds until the live figures have arrived, and the charts are drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("app")
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the address of the gateway")
    parser.add_argument("--dark", action="store_true", help="use the dark color scheme")
    parser.add_argument("--height", type=int, default=900)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": options.height}, color_scheme="dark" if options.dark else "light"
        )
        page.goto(f"{options.url}/console/#/apps/{options.app}")
        page.locator("[data-group]").first.wait_for()
        page.wait_for_timeout(SETTLING)
        page.screenshot(path=options.file)
        browser.close()


if __name__ == "__main__":
    main()

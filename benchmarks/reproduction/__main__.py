"""Writes docs/reproduction.md and docs/simulated-figures.md. With `--check`, only compares them with the expected
contents."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from benchmarks.reproduction.page import page, simulated_page

DOCS = Path(__file__).resolve().parents[2] / "docs"

PAGES = {"reproduction": page, "simulated-figures": simulated_page}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduction", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"{' or '.join(PAGES)} (default: both)")
    parser.add_argument("--check", action="store_true", help="exit with status 1 and print the difference")
    options = parser.parse_args()
    if unknown := sorted({*options.pages}.difference(PAGES)):
        parser.error(f"unknown page {unknown[0]}: use {' or '.join(PAGES)}")
    different = False
    for name in options.pages or PAGES:
        path, expected = DOCS / f"{name}.md", PAGES[name]()
        if not options.check:
            path.write_text(expected, encoding="utf-8")
            continue
        current = path.read_text(encoding="utf-8").splitlines()
        difference = [*difflib.unified_diff(current, expected.splitlines(), path.name, "expected", lineterm="")]
        print("\n".join(difference))
        different = different or bool(difference)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()

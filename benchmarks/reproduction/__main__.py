"""Writes docs/reproduction.md. With `--check`, only compares it with the expected contents."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from benchmarks.reproduction.page import page

PAGE = Path(__file__).resolve().parents[2] / "docs/reproduction.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduction", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 and print the difference")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return
    current = PAGE.read_text(encoding="utf-8").splitlines()
    difference = [*difflib.unified_diff(current, page().splitlines(), str(PAGE.name), "expected", lineterm="")]
    print("\n".join(difference))
    sys.exit(1 if difference else 0)


if __name__ == "__main__":
    main()

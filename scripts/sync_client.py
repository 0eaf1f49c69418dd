"""Makes the synchronous client from the asynchronous one.

`python -m scripts.sync_client` writes it; `--check` compares it. It has no lines that end with `# async only`, and not
the method `_check_loop`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "cornserve/client"
SOURCE, TARGET = FOLDER / "async_client.py", FOLDER / "client.py"

REPLACEMENTS: Final = (
    (
        r'^"""The asynchronous client\..*"""$',
        '"""The synchronous client, from `scripts/sync_client.py`: do not edit."""',
    ),
    (
        r"A client of the gateway at `url`, for one event loop.*?chunks:`\.",
        "A client of the gateway at `url`. Threads can share a client; a forked process needs its own.",
    ),
    (r"^.*# async only\n", ""),
    (r"    def _check_loop\(.*?(?=\n    \S)", ""),
    (r"^import asyncio$", "import time"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"asyncio\.to_thread\(([\w.]+)(, )?", r"\1("),
    (r"AsyncGenerator\[(.*?), None\]", r"Generator[\1, None, None]"),
    (r"Awaitable\[(\w+)\]", r"\1"),
    (r"\b(async|await) ", ""),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\ba(close|closing|read|iter_bytes)\b", r"\1"),
    (r"\bAsync(Client|Generator)\b", r"\1"),
)
"""Patterns and what replaces them, in this order. `^` and `$` match at each line."""


def sync_client() -> str:
    """Returns the module of the synchronous client."""
    text = SOURCE.read_text()
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE | re.DOTALL if ".*?" in pattern else re.MULTILINE)
    for command in (["check", "--fix-only", "--unsafe-fixes", "--select=F401,I,SIM117,UP028", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the file differs")
    options = parser.parse_args()
    content = sync_client()
    if not options.check:
        TARGET.write_text(content)
    elif TARGET.read_text() != content:
        sys.exit(f"{TARGET} differs from {SOURCE.name}: run `python -m scripts.sync_client`")


if __name__ == "__main__":
    main()

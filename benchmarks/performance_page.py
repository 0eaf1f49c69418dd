#!/usr/bin/env python3
"""Writes the figures of this machine and commit to docs/performance.md.

A comment in the page names the command of the tables below it, such as `<!-- benchmarks/idle.py --settle 12 -->`, which
end at `<!-- end -->`. A command with a variable, such as `$SMOLLM2`, needs a directory of a model in this variable of
the environment: without it, its tables stay as they are, with the commit at which they were measured.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from string import Template

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import MARKDOWN_VARIABLE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/performance.md"

_BLOCK = re.compile(r"<!-- (?P<command>benchmarks/.*?) -->\n.*?<!-- end -->", re.DOTALL)
_HEADER = re.compile(r"<!-- measured -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    options = _options()
    text = PAGE.read_text()
    commands = [command for command in commands_of(text) if all(word in command for word in options.only)]
    if options.list:
        print(*commands, sep="\n")
        return
    measured = f"commit {_commit()}, {datetime.now(UTC):%d %B %Y}, {MachineInfo.current()}"
    for command in commands:
        if missing := missing_variables(command):
            print(f"skipped {command}: set {', '.join(missing)}", file=sys.stderr)
            continue
        print(command, file=sys.stderr)
        text = replace_block(text, command, f"*Measured at {measured}.*\n\n{run(command)}")
        PAGE.write_text(text)
    if not options.only:
        PAGE.write_text(_HEADER.sub(lambda _: f"<!-- measured -->\nMeasured at {measured}.\n<!-- end -->", text))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="run the commands that contain all of these words (default: all)")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    return parser.parse_args()


def commands_of(text: str) -> list[str]:
    return [block["command"] for block in _BLOCK.finditer(text)]


def missing_variables(command: str) -> list[str]:
    return [name for name in Template(command).get_identifiers() if name not in os.environ]


def replace_block(text: str, command: str, tables: str) -> str:
    """Returns the page with other tables of a command."""

    def replace(block: re.Match[str]) -> str:
        return f"<!-- {command} -->\n{tables}\n<!-- end -->" if block["command"] == command else block[0]

    return _BLOCK.sub(replace, text)


def run(command: str) -> str:
    """Returns the tables that a command prints, as Markdown."""
    arguments = shlex.split(Template(command).substitute(os.environ))
    environment = os.environ | {MARKDOWN_VARIABLE: "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


def _commit() -> str:
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    return subprocess.run(describe, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()

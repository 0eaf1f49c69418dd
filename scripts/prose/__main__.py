"""Checks the prose of documentation, docstrings, comments and messages: `python -m scripts.prose [FILE …]`.

proselint runs its own checks and those of `style.py`. A line that must keep a forbidden word is listed in
`exceptions.toml` with the reason. An exception that matches nothing is an error, too.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from proselint.checks import __register__ as proselint_checks
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from scripts.prose.clean_files import CleanFiles
from scripts.prose.extract import prose_of
from scripts.prose.style import CHECKS, PROSELINT_CHECKS

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")
SKIPPED = (
    "cornserve/v1/",  # generated
    "scripts/prose/style.py",  # contains the forbidden words
    "tests/unit/test_prose.py",  # contains forbidden words
)


@dataclass(frozen=True, slots=True)
class ProseException:
    """A line that may break a rule."""

    file: str
    text: str
    """Part of the line."""
    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError(f"exception without a reason: {self.file}: {self.text!r}")

    def matches(self, file: str, line: str) -> bool:
        return file == self.file and self.text in line


@dataclass(frozen=True, slots=True)
class ProseFinding:
    file: str
    line: int
    text: str
    """The whole line, as it is in the file."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}\n    {self.text.strip()}"


def main(arguments: Sequence[str]) -> int:
    """Prints all findings. Returns the exit status."""
    exceptions = [ProseException(**entry) for entry in tomllib.loads(EXCEPTIONS.read_text())["exceptions"]]
    CheckRegistry().register_many((*proselint_checks, *CHECKS))
    used: set[ProseException] = set()
    findings = []
    clean = CleanFiles(platformdirs.user_cache_path("cornserve-checks") / "prose")
    for file in map(Path, arguments or _tracked_files()):
        if file in clean:
            continue
        found = list(check_file(file))
        if not found:
            clean.add(file)
        for finding in found:
            matching = {exception for exception in exceptions if exception.matches(finding.file, finding.text)}
            used |= matching
            if not matching:
                findings.append(finding)
    clean.save()
    unused = [] if arguments else [exception for exception in exceptions if exception not in used]
    for finding in findings:
        print(finding)
    for exception in unused:
        print(f"{EXCEPTIONS.name}: {exception.file}: no finding for {exception.text!r}; remove the exception")
    return 1 if findings or unused else 0


def check_file(file: Path) -> Iterator[ProseFinding]:
    source = file.read_text()
    lines = source.splitlines()
    config: Config = {"max_errors": 1000, "checks": dict.fromkeys((*PROSELINT_CHECKS, "style"), True)}
    prose = LintFile(file.as_posix(), prose_of(file, source) or " ")
    for result in prose.lint(config):
        start = result.check_result.span[0]
        while prose.content[start] == "\n":
            start += 1
        line = prose.content.count("\n", 0, start)  # the content starts with an additional newline
        yield ProseFinding(file.as_posix(), line, lines[line - 1], result.check_result.message)


def _tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], check=True, capture_output=True, text=True)
    return [file for file in listed.stdout.splitlines() if not file.startswith(SKIPPED) and Path(file).exists()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

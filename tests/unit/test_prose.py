"""The prose linter finds forbidden words in documentation, docstrings, comments and messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from proselint.registry import CheckRegistry

from scripts.prose.__main__ import check_file
from scripts.prose.style import CHECKS


@pytest.fixture(scope="module", autouse=True)
def register_checks() -> None:
    CheckRegistry().register_many(CHECKS)


def findings(file: Path, text: str) -> list[int]:
    """Returns the lines with findings."""
    file.write_text(text)
    return [finding.line for finding in check_file(file)]


@pytest.mark.parametrize(
    "code",
    [
        '"""What the module does."""',
        'class Box:\n    size: int\n    """Of a box."""',
        "x = 1  # whoever reads this",
        "a = 1  # short\nb = 2  # who calls this",
        "# A comment\n# that goes on, for whoever reads it.\nx = 1",
        'raise ValueError("Who connects gets a session in the gateway")',
        'log.info("no room left here for you: it is told")',
        'raise ValueError("the client is told the reason of it")',
        'name = "x"\nmessage = f"the client {name} is told the reason"',
        'message = (\n    "the first part of a message "\n    f"that {1} goes on for ever"\n)',
        'print("→ → →", "the file is told where it lies")',
    ],
)
def test_forbidden_words_in_python_are_found(code: str, tmp_path: Path) -> None:
    assert findings(tmp_path / "module.py", code)


@pytest.mark.parametrize("line", ["Who connects gets a session.", "# What is served", "- What it prints is a table."])
def test_a_subject_without_a_noun_is_found_at_the_start_of_a_line(line: str, tmp_path: Path) -> None:
    assert findings(tmp_path / "page.md", f"# Title\n\n{line}\n") == [3]


def test_forbidden_words_in_a_table_of_a_page_are_found_with_their_line(tmp_path: Path) -> None:
    assert findings(tmp_path / "page.md", "# Title\n\n| a | b |\n|---|---|\n| `x` | whoever needs it |\n") == [5]


@pytest.mark.parametrize(
    "code",
    [
        '"""Returns the value of `whoever`."""',
        "whoever = told = 1",
        'key = "told"',
        '"""Returns the users. See\n\n    `what` and `who`.\n"""',
        "# A comment that continues on the next line, for requests\n# of a client.\nx = 1",
    ],
)
def test_code_and_plain_sentences_are_not_reported(code: str, tmp_path: Path) -> None:
    assert findings(tmp_path / "module.py", code) == []


def test_code_blocks_of_a_page_are_not_reported(tmp_path: Path) -> None:
    assert findings(tmp_path / "page.md", "Run it:\n\n```bash\necho whoever is told\n```\n") == []

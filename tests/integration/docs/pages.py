"""Code blocks of the documentation pages, in the order of the page.

| fence | |
|---|---|
| ```` ```bash ```` | runs; all blocks of a page share one shell |
| ```` ```python ```` | runs, each block in its own process |
| ```` ```LANGUAGE title="FILE" ```` | is written to FILE |
| ```` ```text ```` | must appear in the output of the previous block; `…` matches any text |
| ```` ```console ```` | does not run: it needs other machines or the whole test suite |

A block must fail if its expected output has a line that starts with `error:`. A block that only includes a file
displays that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]

_FENCE = re.compile(r"^( *)```([a-z]+)(?: title=\"([^\"]+)\")? *\n(.*?)^\1``` *$", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r'^--8<-- "([^":]+)"$')


@dataclass(frozen=True, slots=True)
class CodeBlock:
    page: str
    line: int
    language: str
    title: str | None
    code: str

    @property
    def runs(self) -> bool:
        return self.title is None and self.language in ("bash", "python") and self.included is None

    @property
    def included(self) -> str | None:
        """The included file, or None."""
        match = _INCLUDE.match(self.code.strip())
        return match[1] if match else None

    @property
    def must_fail(self) -> bool:
        return self.language == "text" and any(line.startswith("error:") for line in self.code.splitlines())

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Returns the README and all pages of docs/."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def blocks(page: str) -> list[CodeBlock]:
    text = (ROOT / page).read_text()
    return [
        CodeBlock(page, text.count("\n", 0, match.start()) + 1, match[2], match[3], _dedent(match[4], len(match[1])))
        for match in _FENCE.finditer(text)
    ]


def sections(page: str, *, start: str = "", end: str | None = None) -> list[CodeBlock]:
    """Returns the blocks between the lines `start` and `end`."""
    lines = (ROOT / page).read_text().splitlines()
    first = lines.index(start) if start else 0
    last = lines.index(end) if end else len(lines)
    return [block for block in blocks(page) if first < block.line <= last]


def with_outputs(page: list[CodeBlock]) -> Iterator[tuple[CodeBlock, CodeBlock | None]]:
    """Yields each block that runs or writes a file, with its expected output."""
    for block, following in zip(page, [*page[1:], None], strict=True):
        if block.runs or block.title is not None:
            yield block, following if following is not None and following.language == "text" else None


def _dedent(code: str, width: int) -> str:
    return "".join(line[width:] if line.strip() else line for line in code.splitlines(keepends=True))

"""Pages of the documentation, as a reader who tries everything meets them.

| fence | |
|---|---|
| ```` ```bash ```` | run, in one shell for all of a page |
| ```` ```python ```` | run, each in a process of its own |
| ```` ```LANGUAGE title="FILE" ```` | written to FILE |
| ```` ```text ```` | must appear in what the block before it prints; `…` stands for anything |
| ```` ```console ```` | not run: what takes other machines, or the whole test suite |

A block whose expected output has a line that begins with `error:` must fail. A block that only includes a file shows
it.
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
class Block:
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
        """The file that it shows."""
        match = _INCLUDE.match(self.code.strip())
        return match[1] if match else None

    @property
    def must_fail(self) -> bool:
        return self.language == "text" and any(line.startswith("error:") for line in self.code.splitlines())

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """The README and all of docs/."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[2], match[3], _dedent(match[4], len(match[1])))
        for match in _FENCE.finditer(text)
    ]


def sections(page: str, *, start: str = "", end: str | None = None) -> list[Block]:
    """The blocks from the line `start` on, up to the line `end`."""
    lines = (ROOT / page).read_text().splitlines()
    first = lines.index(start) if start else 0
    last = lines.index(end) if end else len(lines)
    return [block for block in blocks(page) if first < block.line <= last]


def with_outputs(page: list[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Each block that does something, with the output that is expected of it."""
    for block, following in zip(page, [*page[1:], None], strict=True):
        if block.runs or block.title is not None:
            yield block, following if following is not None and following.language == "text" else None


def _dedent(code: str, width: int) -> str:
    return "".join(line[width:] if line.strip() else line for line in code.splitlines(keepends=True))

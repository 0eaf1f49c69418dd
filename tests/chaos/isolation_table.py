"""The table of offences in docs/reference/app-isolation.md. `make chaos` measures and writes the table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/app-isolation.md"
BEGIN = "<!-- offences: measured and written by `make chaos` -->\n"
END = "<!-- end of the offences -->\n"

HEADER = """\
| Offence | Other app: p99 | Maximum | Response | Message | Next request | Repeated |
|---|--:|--:|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class OffenceRow:
    """The effects of one offence."""

    offence: str
    p99_ms: float
    """The other app's latency meanwhile."""
    max_ms: float
    response: str
    """The status and the code of the response to the offending request or deployment."""
    message: str
    following: str
    """The status of the response to the app's next request."""
    repeated: str
    """The state of the app after the offence was repeated. Empty if the test did not repeat it."""

    def __str__(self) -> str:
        times = f"{self.p99_ms:.0f} ms | {self.max_ms:.0f} ms"
        message = self.message.replace("|", "\\|")
        return f"| {self.offence} | {times} | {self.response} | {message} | {self.following} | {self.repeated} |\n"

    @classmethod
    def parse(cls, line: str) -> OffenceRow:
        offence, p99, maximum, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        response, message, following, repeated = (cell.replace("\\|", "|") for cell in cells)
        p99_ms, max_ms = (float(time.removesuffix(" ms")) for time in (p99, maximum))
        return cls(offence, p99_ms, max_ms, response, message, following, repeated)


def documented() -> dict[str, OffenceRow]:
    """Returns the rows of the page by offence."""
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    rows = map(OffenceRow.parse, table.removeprefix(HEADER).splitlines())
    return {row.offence: row for row in rows}


def write(rows: Iterable[OffenceRow]) -> None:
    """Replaces the table of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{HEADER}{''.join(map(str, rows))}{END}{after}")

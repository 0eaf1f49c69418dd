"""The input and the result of a load generator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LoadProtocol = Literal["chat", "invocation"]
"""OpenAI's chat completions over HTTP, or the executor contract."""

Mode = Literal["whole", "stream", "paced"]
"""The response is not streamed, streamed word by word at once, or streamed with a pause before each word."""

WORDS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight",
    "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen",
)  # fmt: skip
RESPONSE_TEXT = " ".join(WORDS)
"""The text of every response."""

PACE_SECONDS = 0.01
"""The pause before each word of a paced stream."""

MODELS: dict[Mode, str] = {"whole": "count", "stream": "count-aloud", "paced": "count-slowly"}
"""The model's name in each mode."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    protocol: LoadProtocol
    address: str
    mode: Mode
    concurrency: int
    seconds: float
    """The duration of the measurement, after a warm-up."""
    processes: tuple[tuple[str, int], ...] = ()
    """Name and process id of the processes whose CPU time is measured."""
    secret: Path | None = None
    """The file of the instance's secret, for invocations."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    """The time to the first byte of the response's body, or to the first event of the call."""
    cpu_us: dict[str, float]
    """CPU time per request by process. "load" is the load generator."""
    others: float
    """The number of cores that processes outside the benchmark used."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def busy(self, process: str) -> float:
        """Returns the share of one core that the process used."""
        return self.cpu_us[process] * self.rate / 1e6

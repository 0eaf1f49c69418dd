"""What a load generator is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Protocol = Literal["chat", "invocation"]
"""OpenAI's, over HTTP, or the executor's own contract."""

Mode = Literal["whole", "stream", "paced"]
"""How a chat is answered: as a whole; word by word, all at once; or word by word with a pause before each."""

WORDS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight",
    "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen",
)  # fmt: skip
ANSWER = " ".join(WORDS)
"""What every request is answered with."""

PACE_SECONDS = 0.01
"""The pause before each word of a paced stream."""

MODELS: dict[Mode, str] = {"whole": "count", "stream": "count-aloud", "paced": "count-slowly"}
"""What answers in which mode."""


@dataclass(frozen=True, slots=True)
class Job:
    protocol: Protocol
    address: str
    mode: Mode
    concurrency: int
    seconds: float
    """How long is measured, after a warm-up."""
    processes: tuple[tuple[str, int], ...] = ()
    """Whose CPU time is taken: (name, process id)."""


@dataclass(frozen=True, slots=True)
class Result:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    """Until the first byte of the answer's body, or the first event of the call."""
    cpu_us: dict[str, float]
    """Per request, by process; the generator's own as "load"."""
    others: float
    """Cores that processes which are none of ours were using meanwhile."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def busy(self, process: str) -> float:
        """The part of one core that the process used."""
        return self.cpu_us[process] * self.rate / 1e6

"""What was seen of each request, and of all of them so far."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from dataclasses import dataclass, field

RECENT = 1000
"""So many of the last samples make the running percentiles."""


@dataclass(slots=True)
class Sample:
    """One request. Times are seconds since the start of the run.

    Latencies count from when the request was due, also where the generator or its connections were late: a slow server
    must not look fast because it kept requests from being sent ("coordinated omission").
    """

    due: float
    sent: float
    first: float | None = None
    """When the first piece of output came; none without a stream."""
    last: float = 0.0
    ended: float = 0.0
    gaps: array[float] = field(default_factory=lambda: array("d"))
    """Between pieces."""
    pieces: int = 0
    output_tokens: int | None = None
    """As the server says."""
    prompt_tokens: int = 0
    error: str | None = None
    """The kind, as errors are counted."""
    reason: str = ""
    """In the server's words."""

    def piece(self, now: float) -> None:
        """A piece of output has come."""
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now
        self.pieces += 1

    @property
    def tokens(self) -> int:
        return self.pieces if self.output_tokens is None else self.output_tokens

    @property
    def latency(self) -> float:
        return self.ended - self.due

    @property
    def ttft(self) -> float | None:
        return None if self.first is None else self.first - self.due

    @property
    def tpot(self) -> float | None:
        """Seconds per output token, after the first one."""
        return None if self.first is None or self.tokens < 2 else (self.last - self.first) / (self.tokens - 1)


class Tally:
    """Grows while a run goes on."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        """Of answered requests."""
        self.errors: Counter[str] = Counter()
        self.late: array[float] = array("d")
        """How much later than due each request was sent."""
        self.recent: deque[Sample] = deque(maxlen=RECENT)
        self.tokens = 0
        self.in_flight = 0
        self.unfinished = 0
        """Cut off by Ctrl-C."""

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def sent(self) -> int:
        return len(self.samples) + self.failed + self.unfinished + self.in_flight

    def begin(self, sample: Sample) -> None:
        self.in_flight += 1
        self.late.append(sample.sent - sample.due)

    def end(self, sample: Sample) -> None:
        self.in_flight -= 1
        if sample.error is not None:
            self.errors[sample.error] += 1
            return
        self.samples.append(sample)
        self.recent.append(sample)
        self.tokens += sample.tokens

    def cut(self) -> None:
        self.in_flight -= 1
        self.unfinished += 1

"""Measurements of each request, and running statistics of all requests."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cornserve_tasklib.media import MODALITIES, Modality

Contents = Modality | Literal["text"]
"""A modality of the media in a request, or "text" for a request without media."""

CONTENTS: tuple[Contents, ...] = ("text", *MODALITIES)

RECENT_SAMPLES = 1000
"""Percentiles of a running measurement use this many of the latest samples."""


@dataclass(slots=True)
class RequestSample:
    """One request. Times are seconds since the start of the run.

    Latencies count from the request's arrival time, even if the generator sent it later. Otherwise, a slow server would
    look fast because it delays the sending of requests ("coordinated omission").
    """

    due: float
    sent: float
    media: Mapping[Modality, int] = field(default_factory=dict)
    """The number of media in the request, by modality."""
    first: float | None = None
    """Time of the first chunk of output, or None without a stream."""
    last: float = 0.0
    ended: float = 0.0
    gaps: array[float] = field(default_factory=lambda: array("d"))
    """Seconds between chunks."""
    first_audio: float | None = None
    """Time of the first audio of a spoken response."""
    audio_seconds: float = 0.0
    """The duration of the audio."""
    chunks: int = 0
    output_tokens: int | None = None
    """The number of output tokens that the server reports."""
    prompt_tokens: int = 0
    error: str | None = None
    """The kind of the error, by which errors are counted."""
    reason: str = ""
    """The server's error message."""

    def record_chunk(self, now: float) -> None:
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now
        self.chunks += 1

    def record_audio(self, now: float, seconds: float) -> None:
        if self.first_audio is None:
            self.first_audio = now
        self.audio_seconds += seconds

    @property
    def contents(self) -> frozenset[Contents]:
        """The modalities of the media, or "text" for a request without media."""
        return frozenset(self.media) or frozenset({"text"})

    @property
    def tokens(self) -> int:
        return self.chunks if self.output_tokens is None else self.output_tokens

    @property
    def latency(self) -> float:
        return self.ended - self.due

    @property
    def ttft(self) -> float | None:
        return None if self.first is None else self.first - self.due

    @property
    def ttfa(self) -> float | None:
        """Seconds to the first audio."""
        return None if self.first_audio is None else self.first_audio - self.due

    @property
    def real_time_factor(self) -> float | None:
        """The latency, divided by the duration of the audio."""
        return self.latency / self.audio_seconds if self.audio_seconds else None

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first one."""
        return None if self.first is None or self.tokens < 2 else (self.last - self.first) / (self.tokens - 1)


class RunStatistics:
    """Running statistics of a run."""

    def __init__(self) -> None:
        self.samples: list[RequestSample] = []
        """The requests that received a response."""
        self.errors: Counter[str] = Counter()
        self.failed_by_contents: Counter[Contents] = Counter()
        self.late: array[float] = array("d")
        """Seconds between the arrival time and the sending of each request."""
        self.recent: deque[RequestSample] = deque(maxlen=RECENT_SAMPLES)
        self.tokens = 0
        self.in_flight = 0
        self.unfinished = 0
        """Requests that Ctrl-C cancelled."""
        self.unsent = 0
        """Requests of a recorded workload that Ctrl-C has prevented from being sent."""

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def sent(self) -> int:
        return len(self.samples) + self.failed + self.unfinished + self.in_flight

    def start_request(self, sample: RequestSample) -> None:
        self.in_flight += 1
        self.late.append(sample.sent - sample.due)

    def finish_request(self, sample: RequestSample) -> None:
        self.in_flight -= 1
        if sample.error is not None:
            self.errors[sample.error] += 1
            self.failed_by_contents.update(sample.contents)
            return
        self.samples.append(sample)
        self.recent.append(sample)
        self.tokens += sample.tokens

    def cancel_request(self) -> None:
        self.in_flight -= 1
        self.unfinished += 1

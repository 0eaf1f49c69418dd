"""Summarizes a workload in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cornserve_planner.requests.request import WorkloadRequest

_MEDIA = ("images", "videos", "audios")
_OUTPUTS = ("image", "video", "audio")


@dataclass(slots=True)
class WorkloadSummary:
    """Counts and means of requests, which `add` collects in order of arrival. Its text has a line for each modality."""

    _requests: int = 0
    _first: float = 0
    _last: float = 0
    _text_tokens: int = 0
    _output_tokens: int = 0
    _clients: set[str] = field(default_factory=set)
    _media: Counter[str] = field(default_factory=Counter)
    _with: Counter[str] = field(default_factory=Counter)
    """Requests by their media and output modalities."""

    def add(self, request: WorkloadRequest) -> None:
        self._first = self._first if self._requests else request.arrival
        self._last = request.arrival
        self._requests += 1
        self._text_tokens += request.text_tokens
        self._output_tokens += request.output_tokens
        self._clients.add(request.client)
        for name in _MEDIA:
            if count := len(getattr(request, name)):
                self._media[name] += count
                self._with[name] += 1
        self._with.update({*request.output_modalities})

    def __str__(self) -> str:
        if not self._requests:
            return "no requests"
        span = self._last - self._first
        rate = f", {(self._requests - 1) / span:.2f} per second" if span else ""
        text_in, text_out = self._text_tokens / self._requests, self._output_tokens / self._requests
        lines = [
            ("requests", f"{self._requests} in {span:.1f} s{rate}, from {len(self._clients)} clients"),
            ("text", f"{text_in:.1f} tokens in, {text_out:.1f} out"),
        ]
        for name in _MEDIA:
            if count := self._with[name]:
                mean = self._media[name] / count
                lines.append((name, f"in {count / self._requests:.1%} of the requests, {mean:.1f} each"))
        lines += [
            (f"{modality} out", f"for {count / self._requests:.1%} of the requests")
            for modality in _OUTPUTS
            if (count := self._with[modality])
        ]
        return "\n".join(f"{name:<12} {text}" for name, text in lines)


def summarize_requests(requests: Iterable[WorkloadRequest]) -> str:
    """Returns the summary of requests in order of arrival."""
    summary = WorkloadSummary()
    for request in requests:
        summary.add(request)
    return str(summary)

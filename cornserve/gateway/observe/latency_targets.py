"""The latency targets of an app: which requests are admitted, and which have met the targets."""

from __future__ import annotations

import time
from collections.abc import Set
from typing import NamedTuple

from cornserve.app.settings import LatencyTargetSettings
from cornserve.gateway.observe.decision_log import log_admission
from cornserve_policies.admission import AdmittedRequest, LatencyAdmission, LatencyTarget, Refusal
from cornserve_policies.due_times import SizeTargets

LATE_CHUNKS = 0.1
"""The share of the times between chunks of one response that may exceed the TBT target [T §4.4]."""

_CLIENT_LEFT = 499


class TargetResult(NamedTuple):
    """Whether a request of a type has met a target. Without a plan, the type is empty."""

    request_type: str
    target: LatencyTarget
    is_met: bool


class AppTargets:
    """The targets of an app with the state of its admission."""

    def __init__(self, settings: LatencyTargetSettings) -> None:
        self.settings = settings
        self.logs_decisions = False
        self._first_output_seconds = settings.ttft_seconds or settings.end_to_end_seconds
        self._sizes: dict[str, SizeTargets] = {}
        """The sizes of inputs, by executor group."""
        self._admission = (
            LatencyAdmission(settings.ttft_seconds, settings.end_to_end_seconds) if settings.admission else None
        )

    def due_us(self, group: str, arrived_us: int, tokens: int) -> int:
        """Returns when an invocation is due, in microseconds since 1970. 0 without a target for it.

        Args:
            tokens: the size of the request's inputs for the executor group so far.
        """
        if self._first_output_seconds is None:
            return 0
        sizes = self._sizes.get(group)
        if sizes is None:
            sizes = self._sizes[group] = SizeTargets(self._first_output_seconds)
        return int(1e6 * sizes.due(arrived_us / 1e6, tokens))

    def retain_groups(self, groups: Set[str]) -> None:
        """Removes the sizes of all other executor groups."""
        for group in self._sizes.keys() - groups:
            del self._sizes[group]

    @property
    def refusing(self) -> list[LatencyTarget]:
        """The targets by which requests are refused."""
        return [] if self._admission is None else self._admission.targets

    def admit(self, *, streams: bool) -> RequestTargets | Refusal:
        """Admits or refuses a request that arrives now."""
        if self._admission is None:
            return RequestTargets(self.settings, None, streams=streams)
        now = time.perf_counter()
        if self.logs_decisions:
            state = self._admission.state(now, streams=streams)
            log_admission(state, now, state.refusal(now))
        admitted = self._admission.admit(now, streams=streams)
        if isinstance(admitted, Refusal):
            return admitted
        return RequestTargets(self.settings, admitted, streams=streams)


class RequestTargets:
    """Compares the latencies of one request with the targets."""

    __slots__ = ("_admitted", "_chunk_gaps", "_first_seconds", "_late_gaps", "_settings", "_streams")

    def __init__(self, settings: LatencyTargetSettings, admitted: AdmittedRequest | None, *, streams: bool) -> None:
        self._settings = settings
        self._admitted = admitted
        self._streams = streams
        self._first_seconds: float | None = None
        self._chunk_gaps = 0
        self._late_gaps = 0

    def record_first_chunk(self, seconds: float) -> None:
        self._first_seconds = seconds
        if self._admitted is not None:
            self._admitted.record_first_output(seconds, time.perf_counter())

    def record_gap(self, seconds: float) -> None:
        """Counts the time between two chunks."""
        self._chunk_gaps += 1
        if self._settings.tbt_seconds is not None and seconds > self._settings.tbt_seconds:
            self._late_gaps += 1

    def record_end(self, status: int, seconds: float) -> list[tuple[LatencyTarget, bool]]:
        """Returns the targets that apply to the request, and whether it has met them.

        Invalid requests have no targets. Failed ones have not met them, nor have requests whose client left later.
        """
        if self._admitted is not None:
            self._admitted.record_end(seconds, time.perf_counter(), is_complete=status == 200)
        if 400 <= status < _CLIENT_LEFT:
            return []
        settings = self._settings
        results: list[tuple[LatencyTarget, bool]] = []
        if self._streams and settings.ttft_seconds is not None:
            if self._first_seconds is not None:
                results.append(("ttft", self._first_seconds <= settings.ttft_seconds))
            else:
                results.extend(_whole("ttft", settings.ttft_seconds, status, seconds))
        if self._streams and settings.tbt_seconds is not None and self._chunk_gaps:
            results.append(("tbt", self._late_gaps <= LATE_CHUNKS * self._chunk_gaps))
        if settings.end_to_end_seconds is not None:
            results.extend(_whole("e2e", settings.end_to_end_seconds, status, seconds))
        return results


def _whole(name: LatencyTarget, target: float, status: int, seconds: float) -> list[tuple[LatencyTarget, bool]]:
    """Returns whether a request that took `seconds` in total has met a target. Nothing if its client left before."""
    if status == _CLIENT_LEFT and seconds <= target:
        return []
    return [(name, status == 200 and seconds <= target)]

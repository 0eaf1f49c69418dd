"""The stages in which requests that miss a latency target lose their time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from cornserve.app.settings import LatencyTargetSettings
from cornserve.gateway.observe.request_spans import AttemptSpan
from cornserve.gateway.observe.request_stats import AppStats, RequestStats
from cornserve.gateway.observe.stage_times import stage_seconds
from cornserve_policies.late_stages import StageTimes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds since the arrival of the request, as a list of one number."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


class Request:
    """A request that arrives at 0."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock
        self.attempts: list[AttemptSpan] = []

    def call(self, group: str, start: float, *, index: int, after: Sequence[int] = (), attempt: int = 0) -> AttemptSpan:
        """Calls an invocation at 0, which starts at a replica later."""
        self._clock[0] = start
        span = AttemptSpan(0.0, group, group, f"{group}-0", index=index, attempt=attempt, after=after, queued=0.0)
        self.attempts.append(span)
        return span

    def end(self, span: AttemptSpan, *, first_output: float | None = None, end: float) -> None:
        if first_output is not None:
            self._clock[0] = first_output
            span.record_item()
        self._clock[0] = end
        span.finish("OK")


def test_a_stage_takes_from_the_outputs_that_it_reads_to_its_own(clock: list[float]) -> None:
    request = Request(clock)
    images = [request.call("encoder", 0.0, index=index) for index in (0, 1)]
    text = request.call("llm", 0.1, index=2, after=[0, 1])
    for image, end in zip(images, (0.5, 2.0), strict=True):
        request.end(image, end=end)
    request.end(text, first_output=2.25, end=9.0)

    assert stage_seconds(request.attempts, 2.25, to_first_output=True) == {"encoder": 2.0, "llm": 0.25}
    assert stage_seconds(request.attempts, 9.0, to_first_output=False) == {"encoder": 2.0, "llm": 7.0}


def test_waiting_for_a_replica_and_attempts_that_fail_count(clock: list[float]) -> None:
    request = Request(clock)
    lost = request.call("llm", 3.0, index=0)
    request.end(lost, end=4.0)
    again = request.call("llm", 5.0, index=0, attempt=1)
    request.end(again, end=6.0)
    assert stage_seconds(request.attempts, 6.0, to_first_output=False) == {"llm": 6.0}


def test_an_invocation_that_runs_counts_until_then(clock: list[float]) -> None:
    request = Request(clock)
    request.call("llm", 0.0, index=0)
    assert stage_seconds(request.attempts, 1.5, to_first_output=True) == {"llm": 1.5}


def test_only_the_time_beyond_that_of_requests_that_meet_their_targets_is_missed() -> None:
    times = StageTimes()
    for _ in range(5):
        times.add({"encoder": 0.5, "llm": 3.0}, to_first_output=True, is_met=True)
    times.add({"encoder": 2.5, "llm": 3.5}, to_first_output=True, is_met=False)
    times.add({"encoder": 0.25, "llm": 3.0}, to_first_output=True, is_met=False)
    assert times.late_us == {"encoder": 2_000_000, "llm": 500_000}

    times.retain_groups({"llm"})
    assert times.late_us == {"llm": 500_000}


def test_without_requests_that_meet_their_targets_all_time_is_missed() -> None:
    times = StageTimes()
    times.add({"encoder": 0.5}, to_first_output=True, is_met=False)
    assert times.late_us == {"encoder": 500_000}


def test_times_until_the_first_output_are_not_compared_with_those_until_the_end() -> None:
    times = StageTimes()
    times.add({"llm": 0.2}, to_first_output=True, is_met=True)
    times.add({"llm": 5.0}, to_first_output=False, is_met=True)
    times.add({"llm": 5.5}, to_first_output=False, is_met=False)
    assert times.late_us == {"llm": 500_000}


class TestStreams:
    """Streams of an encoder and a language model, in an app with targets for all three latencies."""

    TARGETS = LatencyTargetSettings(ttft_seconds=1.0, tbt_seconds=0.1, end_to_end_seconds=10.0)

    def late(self, clock: list[float], *, encoder: float, gap: float) -> dict[str, int]:
        """Returns the missed time in microseconds after 20 usual streams and one of these seconds."""
        app = AppStats()
        app.set_targets(self.TARGETS)
        for _ in range(20):
            self.stream(app, clock, encoder=0.2, gap=0.05)
        self.stream(app, clock, encoder=encoder, gap=gap)
        return {group: late for group, late in app.stage_times.late_us.items() if late}

    def stream(self, app: AppStats, clock: list[float], *, encoder: float, gap: float) -> None:
        request = RequestStats(app)
        begin = clock[0]
        assert request.admit(streams=True) is None
        image = request.begin_attempt("encoder", "encoder", "encoder-0", index=0, attempt=0, after=(), queued=0.0)
        text = request.begin_attempt("llm", "llm", "llm-0", index=1, attempt=0, after=[0], queued=0.0)
        assert image is not None
        assert text is not None
        clock[0] = begin + encoder
        image.finish("OK")
        for number in range(20):
            clock[0] = begin + encoder + 0.1 + number * gap
            text.record_item()
            request.record_chunk()
        text.finish("OK")
        request.record_end(200)

    def test_a_slow_encoder_causes_a_late_first_chunk(self, clock: list[float]) -> None:
        assert self.late(clock, encoder=2.2, gap=0.05) == {"encoder": pytest.approx(2_000_000, abs=2)}

    def test_a_slow_language_model_causes_late_chunks(self, clock: list[float]) -> None:
        assert self.late(clock, encoder=0.2, gap=0.25) == {"llm": pytest.approx(19 * 200_000, abs=2)}

"""Percentiles, latencies of a request, and SLOs."""

from __future__ import annotations

import pytest

from cornserve.bench.percentiles import Percentiles, percentile
from cornserve.bench.slo import Slo
from cornserve.bench.statistics import RequestSample


def sample(
    *chunks: float, due: float = 0.0, sent: float = 0.0, ended: float = 1.0, tokens: int | None = None
) -> RequestSample:
    sample = RequestSample(due, sent, output_tokens=tokens)
    for chunk in chunks:
        sample.record_chunk(chunk)
    sample.ended = ended
    return sample


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7], 99, 7), ([1, 2], 50, 1.5), ([1, 2, 3, 4, 5], 50, 3), ([1, 2, 3, 4, 5], 90, 4.6), ([0, 100], 99, 99)],
)
def test_percentiles_are_interpolated(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_percentiles_are_in_milliseconds_and_need_values() -> None:
    percentiles = Percentiles.from_seconds(n / 1000 for n in range(101))
    assert percentiles == Percentiles(mean=50, p50=50, p90=90, p95=95, p99=99, max=100)
    assert Percentiles.from_seconds([]) is None


def test_latencies_count_from_the_arrival_time() -> None:
    late = sample(3.0, 3.5, 4.0, due=1.0, sent=2.5, ended=4.5)
    assert (late.ttft, late.latency, list(late.gaps)) == (2.0, 3.5, [0.5, 0.5])


@pytest.mark.parametrize(("tokens", "tpot"), [(None, 0.5), (5, 0.25), (1, None)])
def test_the_time_per_token_uses_the_servers_token_count(tokens: int | None, tpot: float | None) -> None:
    assert sample(1.0, 1.5, 2.0, tokens=tokens).tpot == tpot


def test_only_the_latency_is_known_without_a_stream() -> None:
    whole = sample(tokens=10, ended=2.0)
    assert (whole.ttft, whole.tpot, whole.latency, whole.tokens) == (None, None, 2.0, 10)


@pytest.mark.parametrize(
    ("slo", "is_met"),
    [
        ("ttft=200ms", True),
        ("ttft=199ms", False),
        ("tbt=0.25s", True),
        ("tbt=249ms", False),
        ("tpot=200ms,e2e=1s", True),
        ("tpot=200ms, e2e=999ms", False),
    ],
)
def test_a_request_meets_an_slo_if_it_meets_every_bound(slo: str, is_met: bool) -> None:
    assert Slo.parse(slo).is_met(sample(0.2, 0.25, 0.5, ended=1.0, tokens=3)) is is_met


@pytest.mark.parametrize(
    "text",
    ["", "ttft", "ttft=1", "speed=1s", "ttft=1s,ttft=2s", "ttft=1s,", "e2e=0ms", "e2e=1.2.3s", f"e2e={'9' * 400}s"],
)
def test_an_invalid_slo_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="invalid SLO"):
        Slo.parse(text)

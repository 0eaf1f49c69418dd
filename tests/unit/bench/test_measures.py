"""Percentiles, the times of a request, and what is good."""

from __future__ import annotations

import pytest

from cornserve.bench.distribution import Distribution, percentile
from cornserve.bench.samples import Sample
from cornserve.bench.slo import Slo


def sample(
    *pieces: float, due: float = 0.0, sent: float = 0.0, ended: float = 1.0, tokens: int | None = None
) -> Sample:
    sample = Sample(due, sent, output_tokens=tokens)
    for piece in pieces:
        sample.piece(piece)
    sample.ended = ended
    return sample


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7], 99, 7), ([1, 2], 50, 1.5), ([1, 2, 3, 4, 5], 50, 3), ([1, 2, 3, 4, 5], 90, 4.6), ([0, 100], 99, 99)],
)
def test_percentiles_lie_between_the_values_around_their_rank(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_a_distribution_is_in_milliseconds_and_of_nothing_there_is_none() -> None:
    seen = Distribution.of(n / 1000 for n in range(101))
    assert seen == Distribution(mean=50, p50=50, p90=90, p95=95, p99=99, max=100)
    assert Distribution.of([]) is None


def test_times_count_from_when_the_request_was_due() -> None:
    late = sample(3.0, 3.5, 4.0, due=1.0, sent=2.5, ended=4.5)
    assert (late.ttft, late.latency, list(late.gaps)) == (2.0, 3.5, [0.5, 0.5])


@pytest.mark.parametrize(("tokens", "tpot"), [(None, 0.5), (5, 0.25), (1, None)])
def test_the_time_per_token_is_that_of_the_tokens_that_the_server_counted(
    tokens: int | None, tpot: float | None
) -> None:
    assert sample(1.0, 1.5, 2.0, tokens=tokens).tpot == tpot


def test_without_a_stream_only_the_whole_is_known() -> None:
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
def test_a_request_is_good_if_it_keeps_every_bound(slo: str, is_met: bool) -> None:
    assert Slo.parse(slo).is_met(sample(0.2, 0.25, 0.5, ended=1.0, tokens=3)) is is_met


@pytest.mark.parametrize(
    "text",
    ["", "ttft", "ttft=1", "speed=1s", "ttft=1s,ttft=2s", "ttft=1s,", "e2e=0ms", "e2e=1.2.3s", f"e2e={'9' * 400}s"],
)
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no SLO"):
        Slo.parse(text)

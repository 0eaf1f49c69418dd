"""Arrival processes have the given rate and burstiness."""

from __future__ import annotations

import numpy as np
import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.workload.azure_trace import azure_lmm_2024
from cornserve_planner.workload.interarrival import Family, InterarrivalGaps, draw_arrivals, weibull_cv, weibull_shape
from cornserve_planner.workload.rate_curve import RateCurve


@pytest.mark.parametrize(
    ("family", "cv"),
    [("poisson", 1.0), ("gamma", 0.3), ("gamma", 2.5), ("weibull", 0.4), ("weibull", 1.0), ("weibull", 2.0)],
)
def test_the_gaps_have_the_given_rate_and_variation(family: Family, cv: float) -> None:
    times = draw_arrivals(RateCurve(40_000, (2.0,)), InterarrivalGaps(family, cv), np.random.default_rng(1))

    gaps = np.diff(times)
    assert len(times) == pytest.approx(80_000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


def test_the_rate_follows_a_curve_for_any_burstiness() -> None:
    curve = RateCurve(1000, (1.0, 0.0, 8.0, 2.0))

    counts = np.zeros(4)
    for seed in range(40):
        times = draw_arrivals(curve, InterarrivalGaps("gamma", 2.0), np.random.default_rng(seed))
        assert (np.diff(times) >= 0).all()
        counts += np.histogram(times, bins=[0, 1000, 2000, 3000, 4000])[0]

    assert counts[1] == 0
    assert counts / 40_000 == pytest.approx([1.0, 0.0, 8.0, 2.0], rel=0.06)


def test_a_process_does_not_start_with_an_arrival() -> None:
    curve = RateCurve(0.5, (1.0,))

    first = [
        len(draw_arrivals(curve, InterarrivalGaps("gamma", 0.5), np.random.default_rng(seed))) for seed in range(2000)
    ]

    assert np.mean(first) == pytest.approx(0.5, abs=0.05)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    curve = RateCurve(10, (5.0, 1.0))

    once, again = (draw_arrivals(curve, InterarrivalGaps("weibull", 1.7), np.random.default_rng(3)) for _ in range(2))

    assert once.tolist() == again.tolist()


@pytest.mark.parametrize("cv", [0.05, 0.5, 1.0, 3.0, 15.0])
def test_a_weibull_shape_is_found_for_any_variation(cv: float) -> None:
    assert weibull_cv(weibull_shape(cv)) == pytest.approx(cv, rel=1e-9)


def test_a_curve_can_be_scaled_cut_and_compressed() -> None:
    curve = RateCurve(60, (1.0, 2.0, 6.0))

    assert curve.mean == 3
    assert curve.scaled(6).rates == (2.0, 4.0, 12.0)
    assert curve.between(60, 180).rates == (2.0, 6.0)
    assert curve.faster(60) == RateCurve(1, curve.rates)
    assert [curve.at(second) for second in (0, 119, 120, 180)] == [1, 2, 6, 1]


def test_the_azure_week_is_a_curve_of_a_million_requests() -> None:
    recorded = azure_lmm_2024()

    assert sum(recorded.counts) == 1_000_000
    assert recorded.curve.seconds == 7 * 24 * 3600
    assert (min(recorded.counts), max(recorded.counts)) == (5, 468)
    assert recorded.licence == "CC-BY-4.0"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: RateCurve(0, (1.0,)), "step: must be a finite number greater than 0, not 0"),
        (lambda: RateCurve(1, ()), "rates: must not be empty"),
        (lambda: RateCurve(1, (1.0, -2.0)), r"rates\[1\]: must be a finite number of at least 0, not -2.0"),
        (lambda: RateCurve(1, (float("nan"),)), r"rates\[0\]: must be a finite number .* not nan"),
        (lambda: RateCurve(1, (0.0,)).scaled(1), "rates: are all 0 and cannot be scaled"),
        (lambda: RateCurve(1, (1.0,)).scaled(-1), "mean: must be a finite number of at least 0, not -1"),
        (lambda: RateCurve(1, (1.0,)).between(0, 2), "start, end: 0 to 2 s is outside the curve's 1 s"),
        (lambda: RateCurve(1, (1.0,)).faster(0), "factor: must be a finite number greater than 0, not 0"),
        (lambda: InterarrivalGaps("gamma", 0), "cv: must be a finite number greater than 0, not 0"),
        (lambda: InterarrivalGaps("poisson", 2), "cv: must be 1 for a Poisson process, not 2"),
        (lambda: InterarrivalGaps("cauchy", 1), "family: must be one of poisson, gamma, weibull, not 'cauchy'"),  # type: ignore[arg-type]
        (
            lambda: InterarrivalGaps("weibull", 1e9).draw(1, None),
            "cv: must be within the range of Weibull shapes",
        ),
    ],
)
def test_invalid_rates_and_variations_are_rejected(make: object, error: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=error):
        make()

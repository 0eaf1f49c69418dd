"""The counts of the last hour, and their sums over several gateways."""

from __future__ import annotations

import math

import pytest

from cornserve.app.overview import ReadGateways
from cornserve.gateway.live.figures import AppCounts, GatewayFigures, Sums
from cornserve.gateway.live.series import GatewaySteps, app_series
from cornserve.gateway.observe.app_history import MAX_APPS, STEP_SECONDS, STEPS, FigureHistory, StateCounts
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.observe.histogram import SECONDS, quantile

START = 1_000_000 * STEP_SECONDS


def history_of(metrics: GatewayMetrics, replicas: dict[str, StateCounts] | None = None) -> FigureHistory:
    history = FigureHistory(lambda: metrics.apps, lambda: replicas or {})
    history.record(START, 0.0)
    return history


def request(metrics: GatewayMetrics, app: str = "chat", status: int = 200) -> None:
    stats = metrics.new_request(app)
    stats.admit(streams=True)
    stats.record_chunk()
    stats.record_end(status)


def test_a_window_has_the_growth_since_the_last_old_enough_sample() -> None:
    metrics = GatewayMetrics()
    history = history_of(metrics)
    request(metrics)
    history.record(START + STEP_SECONDS, 15.0)
    request(metrics)
    request(metrics, status=500)

    recent, minute = history.window("chat", 10, now=27.0), history.window("chat", 20, now=27.0)

    assert (recent.seconds, recent.counts["status", "200"], recent.counts["status", "500"]) == (12.0, 1, 1)
    assert (minute.seconds, minute.counts["status", "200"]) == (27.0, 2)
    assert history.window("unknown", 10, now=27.0).counts == {}


def test_the_last_hour_has_rates_and_percentiles() -> None:
    metrics = GatewayMetrics()
    history = history_of(metrics, {"chat": StateCounts(2)})
    for status in (200, 200, 500):
        request(metrics, status=status)
    history.record(START + STEP_SECONDS, 15.0)
    history.record(START + 2 * STEP_SECONDS, 30.0)

    series = app_series([GatewaySteps.of(history.steps("chat"))], ReadGateways(), START + 2 * STEP_SECONDS)

    assert series.times == [START, START + STEP_SECONDS, START + 2 * STEP_SECONDS]
    assert series.requests_per_second == [0, 3 / STEP_SECONDS, 0]
    assert series.errors_per_second == [0, 1 / STEP_SECONDS, 0]
    assert series.ready == [2, 2, 2]
    assert series.ttft_p50[1] is not None
    assert series.ttft_p50[2] is None


def test_the_hours_of_all_gateways_are_added() -> None:
    found = []
    for _ in range(2):
        metrics = GatewayMetrics()
        history = history_of(metrics, {"chat": StateCounts(3)})
        request(metrics)
        history.record(START + STEP_SECONDS, 15.0)
        found.append(GatewaySteps.of(history.steps("chat")))

    series = app_series(found, ReadGateways(read=2), START + STEP_SECONDS)

    assert series.requests_per_second == [0, 2 / STEP_SECONDS]
    assert series.ready == [3, 3]


def test_the_last_hour_has_the_states_of_replicas() -> None:
    replicas = {"chat": StateCounts(ready=2)}
    history = history_of(GatewayMetrics(), replicas)
    for number, counts in enumerate([StateCounts(ready=1, failed=1), StateCounts(1, 1), StateCounts(2)]):
        replicas["chat"] = counts
        history.record(START + (number + 1) * STEP_SECONDS, 15.0 * (number + 1))
    history.record(START + 4 * STEP_SECONDS, 60.0)

    series = app_series([GatewaySteps.of(history.steps("chat"))], ReadGateways(), START + 4 * STEP_SECONDS)

    assert series.ready == [2, 1, 1, 2, 2]
    assert series.failed == [0, 1, 0, 0, 0]
    assert series.starting == [0, 0, 1, 0, 0]
    assert series.draining == [0, 0, 0, 0, 0]


def test_only_the_last_hour_and_the_last_apps_are_kept() -> None:
    metrics = GatewayMetrics()
    history = history_of(metrics)
    for number in range(STEPS + 10):
        request(metrics)
        history.record(START + (number + 1) * STEP_SECONDS, 15.0 * (number + 1))
    assert len(history.steps("chat")) == STEPS + 1  # The first one has the replicas since then.

    for number in range(MAX_APPS):
        request(metrics, f"app-{number}")
    history.record(START + 1000 * STEP_SECONDS, 15_000.0)

    assert sum(bool(history.steps(app)) for app in metrics.apps) == MAX_APPS


def test_more_active_apps_than_are_kept_do_not_replace_each_other() -> None:
    metrics = GatewayMetrics()
    history = history_of(metrics)
    for number in range(3):
        for app in range(MAX_APPS + 10):
            request(metrics, f"app-{app}")
        history.record(START + (number + 1) * STEP_SECONDS, 15.0 * (number + 1))

    assert [len(history.steps(f"app-{app}")) for app in range(MAX_APPS + 10)] == [3] * MAX_APPS + [0] * 10


def test_an_app_without_requests_for_an_hour_keeps_its_replicas() -> None:
    replicas = {"chat": StateCounts(2, 0, 0, 0)}
    history = FigureHistory(dict, lambda: replicas)
    history.record(START, 0.0)
    history.record(START + (STEPS + 60) * STEP_SECONDS, 15.0 * (STEPS + 60))

    own = GatewaySteps.of(history.steps("chat"))
    series = app_series([own], ReadGateways(), START + (STEPS + 60) * STEP_SECONDS)

    assert set(series.ready) == {2}


def test_a_deleted_app_is_forgotten() -> None:
    metrics = GatewayMetrics()
    history = history_of(metrics)
    request(metrics)
    history.record(START + STEP_SECONDS, 15.0)
    metrics.forget_app("chat")
    history.record(START + 2 * STEP_SECONDS, 30.0)

    assert history.steps("chat") == []


def test_the_figures_of_gateways_are_added() -> None:
    counts = AppCounts(running=1, total=[(("status", "200"), 3)], window=[(("status", "200"), 1)])
    gateways = [GatewayFigures(window_seconds=60 + n, apps={"chat": counts}, replicas={}) for n in range(2)]

    sums = Sums.of(gateways, 60)

    assert sums.window_seconds == 61
    assert sums.app("chat").running == 2
    assert sums.app("chat").total == {("status", "200"): 6}
    assert sums.app("other").total == {}


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({}, 0.5, None),
        ({0: 10}, 0.5, SECONDS[0] / 2),
        ({1: 1, 3: 1}, 0.5, SECONDS[1]),
        ({1: 1, 3: 3}, 1.0, SECONDS[3]),
        ({len(SECONDS): 1}, 0.5, SECONDS[-1]),
    ],
)
def test_quantiles_are_those_of_prometheus(counts: dict[int, int], share: float, expected: float | None) -> None:
    found = quantile(counts, share)

    assert found == expected if expected is None or found is None else math.isclose(found, expected)

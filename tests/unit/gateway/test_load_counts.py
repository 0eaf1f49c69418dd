"""The counts that gateways send to the controller."""

from __future__ import annotations

from collections import Counter

from prometheus_client import generate_latest

from cornserve.app.settings import LatencyTargetSettings
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.observe.latency_targets import TargetResult
from cornserve.gateway.observe.request_stats import AppStats
from cornserve_policies.path_table import CellPath


def test_requests_count_by_the_targets_that_they_have_met_and_missed() -> None:
    metrics = GatewayMetrics()
    metrics.set_targets("chat", LatencyTargetSettings(ttft_seconds=60, end_to_end_seconds=60))
    for status in (200, 500, 400):
        request = metrics.new_request("chat")
        assert request.admit(streams=True) is None
        request.record_chunk()
        request.record_end(status)
    metrics.new_request("plain").record_end(200)

    arrivals = metrics.arrivals()

    assert arrivals.met == {"chat": {"ttft": 2, "e2e": 1}}
    assert arrivals.missed == {"chat": {"e2e": 1}}


def test_refused_requests_have_missed_their_target() -> None:
    late = TargetResult("text", "ttft", is_met=False)
    stats = AppStats(target_results=Counter({late: 2}), refusals=Counter(ttft=3, e2e=0))

    assert stats.missed_targets == {"ttft": 5}


def test_the_loads_of_removed_groups_and_executors_are_forgotten() -> None:
    metrics = GatewayMetrics()
    request = metrics.new_request("chat")
    metrics.retain_groups("chat", {"old-group", "new-group"}, {"old-executor": "old", "new-executor": "a,b"})
    request.record_path(0, CellPath("text", "cell", 0))
    for version in ("old", "new"):
        request.record_invocation(f"{version}-group", f"{version}-executor", 10)

    assert metrics.arrivals().type_invocations == {"chat": {"text": {"old": 1, "a,b": 1}}}

    metrics.retain_groups("chat", {"new-group"}, {"new-executor": "new"})
    metrics.retain_groups("unknown", set(), {})

    assert metrics.arrivals().invocations == {"chat": {"new-group": 1}}
    assert metrics.arrivals().tokens == {"chat": {"new-group": 10}}
    exposed = generate_latest(metrics.registry).decode()
    counts = [line for line in exposed.splitlines() if "_type_invocations_total{" in line]
    assert counts == ['cornserve_gateway_type_invocations_total{app="chat",option="new",type="text"} 1.0']

"""Metrics of a controller."""

from __future__ import annotations

import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.metrics import ControllerMetrics
from tests.unit.control.running_controller import FakeLauncher


@pytest.fixture
def metrics() -> ControllerMetrics:
    return ControllerMetrics(FakeLauncher())


def observe(metrics: ControllerMetrics, **states: str) -> None:
    """Observes replicas of one group, by name."""
    metrics.observe([Replica(ReplicaId(name), GroupKey("llm"), ReplicaState(state)) for name, state in states.items()])


def starts(metrics: ControllerMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"cornserve_controller_replica_start_seconds_{name}", {"group": "llm"})


def test_the_starts_of_replicas_are_timed(metrics: ControllerMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("cornserve.control.metrics.time.monotonic", lambda: now)
    observe(metrics, adopted="ready", a="starting", b="starting")
    now = 110.0
    observe(metrics, adopted="ready", a="ready", b="starting")
    now = 130.0
    observe(metrics, adopted="ready", a="ready", b="ready", c="starting")
    observe(metrics, adopted="ready", a="ready", b="ready", c="failed")

    assert (starts(metrics, "count"), starts(metrics, "sum")) == (2, 40)

    metrics.retain(set(), set())
    assert starts(metrics, "count") is None


def test_the_time_of_replicas_that_occupy_slots_is_counted(
    metrics: ControllerMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("cornserve.control.metrics.time.monotonic", lambda: now)
    observe(metrics, a="ready", b="starting", c="failed")
    now = 110.0
    observe(metrics, a="draining", c="failed")
    now = 113.0

    def seconds() -> float | None:
        return metrics.registry.get_sample_value("cornserve_controller_replica_seconds_total", {"group": "llm"})

    assert seconds() == 2 * 10 + 3
    observe(metrics)
    now = 120.0
    assert seconds() == 23
    metrics.retain(set(), set())
    assert seconds() is None

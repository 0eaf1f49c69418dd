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

"""The stats of replicas that have left all routes."""

from __future__ import annotations

import pytest

from cornserve.gateway.observe import replica_metrics
from cornserve.gateway.observe.replica_metrics import RETENTION_SECONDS, ReplicaStatsRegistry
from tests.fake_time import FakeTime


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    monkeypatch.setattr(replica_metrics, "time", time := FakeTime())
    return time


def test_a_removed_replica_without_invocations_is_forgotten_after_the_retention(time: FakeTime) -> None:
    stats = ReplicaStatsRegistry()
    for number, name in enumerate(("idle", "busy", "back")):
        stats.add("echo", f"127.0.0.1:{number}", name)
        stats.remove(f"127.0.0.1:{number}")
    stats.for_endpoint("127.0.0.1:1").record_start()
    stats.add("echo", "127.0.0.1:2", "back")

    time.now += RETENTION_SECONDS - 1
    assert [each.replica for each in stats] == ["idle", "busy", "back"]
    time.now += 1
    assert [each.replica for each in stats] == ["busy", "back"]

    stats.for_endpoint("127.0.0.1:1").record_end("OK", 1.0)
    assert [each.replica for each in stats] == ["back"]

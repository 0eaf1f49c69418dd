"""Metrics of the copies of KV caches."""

from __future__ import annotations

from cornserve_executors.llm.kv_stats import KvStats
from tests.integration.docs.documented_metrics import documented_metrics


def test_the_metrics_are_documented() -> None:
    found = {(metric.name, metric.type, frozenset[str]()) for metric in KvStats().metrics()}

    assert found == documented_metrics("## KV caches")


def test_copies_are_measured() -> None:
    stats = KvStats()

    stats.record(0.5, 100)
    stats.record(0.25, 20)

    values = {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}
    assert values["cornserve_llm_kv_copied_bytes_total"] == 120
    assert values["cornserve_llm_kv_copy_seconds_sum"] == 0.75
    assert values["cornserve_llm_kv_copy_seconds_count"] == 2

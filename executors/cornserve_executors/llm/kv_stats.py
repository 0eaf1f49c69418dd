"""Prometheus metrics of the KV caches that an engine saves or loads."""

from __future__ import annotations

from cornserve_executors.engine_stats import EngineStats, counter, histogram


class KvStats(EngineStats, prefix="cornserve_llm_kv"):
    copy_seconds = histogram("Seconds in which the engine copies the KV cache of a prompt to or from shared memory.")
    copied_bytes = counter("Bytes of the copied KV caches.")

    def record(self, seconds: float, nbytes: int) -> None:
        self.copy_seconds.observe(seconds)
        self.copied_bytes += nbytes

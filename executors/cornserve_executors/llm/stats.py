"""The engine's own figures, which vLLM reports after each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, SchedulerStats


class Stats(StatLoggerBase):  # type: ignore[misc]
    def __init__(self) -> None:
        self._scheduler = SchedulerStats()
        self._generated_tokens = 0

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, *_: Any, **__: Any
    ) -> None:
        if scheduler_stats is not None:
            self._scheduler = scheduler_stats
        if iteration_stats is not None:
            self._generated_tokens += iteration_stats.num_generation_tokens

    def log_engine_initialized(self) -> None:
        pass

    def figures(self) -> Mapping[str, float]:
        return {
            "cornserve_llm_running": self._scheduler.num_running_reqs,
            "cornserve_llm_waiting": self._scheduler.num_waiting_reqs + self._scheduler.num_skipped_waiting_reqs,
            "cornserve_llm_kv_cache_usage": self._scheduler.kv_cache_usage,
            "cornserve_llm_generated_tokens": self._generated_tokens,
        }

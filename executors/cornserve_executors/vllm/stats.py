"""Prometheus metrics of a vLLM engine, under vLLM's names. vLLM reports them after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats

from cornserve.observe.histogram import TOKENS, Histogram

_COUNTERS = {
    "prompt_tokens": "Prompt tokens.",
    "generation_tokens": "Generated tokens.",
    "prefix_cache_queries": "Tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Tokens found in the prefix cache.",
    "num_preemptions": "Preemptions of requests, which lose their KV cache.",
}
_HISTOGRAMS = {
    "time_to_first_token_seconds": "TTFT: from a request's arrival at the engine to its first token.",
    "inter_token_latency_seconds": "TBT: from one token to the next.",
    "request_time_per_output_token_seconds": "TPOT: the mean of a request's TBT.",
    "e2e_request_latency_seconds": "From a request's arrival at the engine to its end.",
    "request_queue_time_seconds": "From a request's arrival at the scheduler to its first step.",
    "request_prefill_time_seconds": "From a request's first step to its first token.",
    "request_decode_time_seconds": "From a request's first token to its last.",
}
_SIZES = {
    "request_prompt_tokens": "Prompt tokens of a request.",
    "request_generation_tokens": "Generated tokens of a request.",
    "iteration_tokens": "Prompt and generated tokens of an engine step: the batch size.",
}


class VllmStats(StatLoggerBase):  # type: ignore[misc]
    def __init__(self) -> None:
        self._scheduler = SchedulerStats()
        self._counts: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()
        self._seconds = {name: Histogram() for name in _HISTOGRAMS}
        self._sizes = {name: Histogram(TOKENS) for name in _SIZES}

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, *_: Any, **__: Any
    ) -> None:
        if scheduler_stats is not None:
            self._scheduler = scheduler_stats
            self._counts["prefix_cache_queries"] += scheduler_stats.prefix_cache_stats.queries
            self._counts["prefix_cache_hits"] += scheduler_stats.prefix_cache_stats.hits
        if iteration_stats is not None:
            self._record_step(iteration_stats)
            for request in iteration_stats.finished_requests:
                self._record_finished(request)

    def _record_step(self, step: IterationStats) -> None:
        self._counts["prompt_tokens"] += step.num_prompt_tokens
        self._counts["generation_tokens"] += step.num_generation_tokens
        self._counts["num_preemptions"] += step.num_preempted_reqs
        self._sizes["iteration_tokens"].observe(step.num_prompt_tokens + step.num_generation_tokens)
        for seconds in step.time_to_first_tokens_iter:
            self._seconds["time_to_first_token_seconds"].observe(seconds)
        inter_token_latency = self._seconds["inter_token_latency_seconds"]
        for seconds in step.inter_token_latencies_iter:
            inter_token_latency.observe(seconds)

    def _record_finished(self, request: FinishedRequestStats) -> None:
        self._finished[str(request.finish_reason)] += 1
        self._seconds["e2e_request_latency_seconds"].observe(request.e2e_latency)
        self._seconds["request_queue_time_seconds"].observe(request.queued_time)
        self._seconds["request_prefill_time_seconds"].observe(request.prefill_time)
        self._seconds["request_decode_time_seconds"].observe(request.decode_time)
        self._seconds["request_time_per_output_token_seconds"].observe(request.mean_time_per_output_token)
        self._sizes["request_prompt_tokens"].observe(request.num_prompt_tokens)
        self._sizes["request_generation_tokens"].observe(request.num_generation_tokens)

    def log_engine_initialized(self) -> None:
        pass

    def metrics(self) -> Iterator[Metric]:
        scheduler = self._scheduler
        waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
        yield _gauge("num_requests_running", "Requests in the running batch.", scheduler.num_running_reqs)
        yield _gauge("num_requests_waiting", "Requests waiting for the running batch.", waiting)
        yield _gauge("kv_cache_usage_perc", "Fraction of the KV cache in use, from 0 to 1.", scheduler.kv_cache_usage)
        for name, help in _COUNTERS.items():
            yield CounterMetricFamily(f"cornserve_llm_{name}", help, value=self._counts[name])
        finished = CounterMetricFamily(
            "cornserve_llm_request_success", "Finished requests, by reason.", labels=["finished_reason"]
        )
        for reason, count in self._finished.copy().items():
            finished.add_metric([reason], count)
        yield finished
        for helps, histograms in ((_HISTOGRAMS, self._seconds), (_SIZES, self._sizes)):
            for name, histogram in histograms.items():
                family = HistogramMetricFamily(f"cornserve_llm_{name}", helps[name])
                histogram.add_to(family)
                yield family


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cornserve_llm_{name}", help, value=value)

"""The access log: one line for each request, if it is enabled.

A line costs several times as much as all metrics of a request, so the log is off by default.
"""

from __future__ import annotations

import logging

from cornserve.gateway.observe.request_stats import RequestStats

log = logging.getLogger("cornserve.access")


def log_request(stats: RequestStats, status: int) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    fields = {
        "path": stats.path,
        "status": status,
        "seconds": round(stats.seconds, 6),
        "first_seconds": None if stats.first_chunk_seconds is None else round(stats.first_chunk_seconds, 6),
        "prompt_tokens": stats.prompt_tokens or None,
        "generation_tokens": stats.generation_tokens or None,
        "compute_seconds": round(stats.compute_seconds, 6) or None,
        "retries": stats.retries or None,
    }
    log.info("request", extra={"fields": {name: value for name, value in fields.items() if value is not None}})

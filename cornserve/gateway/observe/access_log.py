"""A line in the log for each request that is served, if that is wanted.

It costs several times what all metrics of a request cost, and more than a request may.
"""

from __future__ import annotations

import logging

from fastapi import Request

from cornserve.gateway.observe.meter import Meter

log = logging.getLogger("cornserve.access")

CLIENTS_ID = "x-request-id"
MAX_CHARACTERS = 128
"""Of an id that a client gives."""


def write(request: Request, meter: Meter, status: int) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    fields = {
        "client_request_id": request.headers.get(CLIENTS_ID, "")[:MAX_CHARACTERS] or None,
        "path": meter.path,
        "status": status,
        "seconds": round(meter.seconds, 6),
        "first_seconds": None if meter.first is None else round(meter.first, 6),
        "prompt_tokens": meter.prompt_tokens or None,
        "generation_tokens": meter.generation_tokens or None,
        "retries": meter.retries or None,
    }
    log.info("request", extra={"fields": {name: value for name, value in fields.items() if value is not None}})

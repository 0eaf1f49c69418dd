"""The decision log: one line for each choice of a path and of a replica, for apps that have it switched on."""

from __future__ import annotations

import logging

from cornserve_policies.board import ReplicaLoad
from cornserve_policies.path_table import CellPath

log = logging.getLogger("cornserve.decisions")


def log_path(request_id: str, chosen: CellPath, reason: str) -> None:
    """Logs the choice of a cell and a path. The type and the cell are empty without a plan."""
    fields = {
        "event": "path",
        "request_id": request_id,
        "type": chosen.request_type,
        "cell": chosen.cell,
        "path": chosen.path,
        "reason": reason,
    }
    log.info("decision", extra={"fields": fields})


def log_replica(request_id: str, invocation: int, attempt: int, load: ReplicaLoad, now: float, reason: str) -> None:
    """Logs the choice of a replica, with its load before the invocation."""
    fields = {
        "event": "replica",
        "request_id": request_id,
        "invocation": invocation,
        "attempt": attempt,
        "replica": load.id,
        "invocations": load.invocations(now),
        "pending_tokens": load.pending_tokens(now),
        "reason": reason,
    }
    log.info("decision", extra={"fields": fields})

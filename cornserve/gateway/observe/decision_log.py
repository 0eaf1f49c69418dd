"""The decision log of a gateway: each choice of a path and of a replica, for apps that have it switched on."""

from __future__ import annotations

from dataclasses import asdict

from cornserve.gateway.request_route import RequestRoute
from cornserve.observe.decision_file import log_decision
from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.path_table import CellPath
from cornserve_policies.recorded_decisions import record_board, record_table
from cornserve_policies.replica_routing import RoutedInvocation


def log_path(
    request_id: str, random_key: str, route: RequestRoute, known_type: str | None, chosen: CellPath, reason: str
) -> None:
    """Logs the choice of a cell and a path. The type and the cell are empty without a plan.

    Args:
        known_type: the type of the request in the plan, or None.
    """
    fields = {
        "event": "path",
        "request_id": request_id,
        "type": chosen.request_type,
        "cell": chosen.cell,
        "path": chosen.path,
        "reason": reason,
    }
    plan = route.plan
    if plan is None:
        log_decision(fields, {"key": random_key, "shares": list(route.shares)})
    else:
        seen = {"key": random_key, "type": known_type}
        log_decision(fields, seen, (plan, lambda: {"table": record_table(plan)}))


def log_replica(
    request_id: str,
    invocation: RoutedInvocation,
    attempt: int,
    board: Board,
    now: float,
    chosen: ReplicaLoad,
    reason: str,
) -> None:
    """Logs the choice of a replica, with its load before the invocation."""
    fields = {
        "event": "replica",
        "request_id": request_id,
        "invocation": invocation.index,
        "attempt": attempt,
        "replica": chosen.id,
        "invocations": chosen.invocations(now),
        "pending_tokens": chosen.pending_tokens(now),
        "reason": reason,
    }
    seen = {"key": invocation.request_id, "size": asdict(invocation.size), "now": now, **record_board(board, now)}
    log_decision(fields, seen)

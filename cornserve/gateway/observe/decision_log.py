"""The decision log of a gateway: admissions, and choices of paths and replicas, for apps that switch it on."""

from __future__ import annotations

from dataclasses import asdict

from cornserve.gateway.request_route import RequestRoute
from cornserve.observe.decision_file import log_decision
from cornserve_policies.admission import AdmissionState, Refusal
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


def log_admission(state: AdmissionState, now: float, refusal: Refusal | None) -> None:
    """Logs whether a request is refused early. The id of the request and its app are bound to the log."""
    fields = {
        "event": "admission",
        "refused": "" if refusal is None else refusal.target,
        "reason": "" if refusal is None else f"{refusal.expected_seconds:.3g} s of {refusal.target_seconds:g} s",
    }
    ttft, e2e = (None if each is None else each._asdict() for each in (state.ttft, state.e2e))
    log_decision(fields, {"now": now, "next_probe": state.next_probe, "ttft": ttft, "e2e": e2e})


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

"""The conditions of an app, from the status of its record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cornserve.app.record import AppStatus, FailureReason, GroupStatus, Phase, PlanningStep, ReplicaState, ReplicaStatus
from cornserve.kubernetes_resources.app_status import (
    MAX_MESSAGE_CHARACTERS,
    ConditionStatus,
    ConditionType,
    StatusCondition,
)
from cornserve.kubernetes_resources.replica_reason import OBSTACLES

DEGRADED_LOG_LINES = 5
"""Number of log lines in the message of `Degraded`."""

NOT_ACCEPTED = (
    FailureReason.INVALID_SPEC,
    FailureReason.SOURCE_NOT_FOUND,
    FailureReason.IMPORT_FAILED,
    FailureReason.UNKNOWN_GPU_TYPE,
    FailureReason.INVALID_POD_TEMPLATE,
)

NOT_PLANNED = (FailureReason.PROFILING_FAILED, FailureReason.PLANNING_FAILED)

_PHASE_REASONS = {
    "Pending": Phase.PENDING,
    "Complete": Phase.SERVING,
    "ScaledToZero": Phase.PARKED,
    "Failed": Phase.FAILED,
} | dict.fromkeys(FailureReason, Phase.FAILED)
"""The phase for each reason of `Progressing` while its status is not `True`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its generation and time."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


def with_times(
    findings: Iterable[Finding], generation: int, current: Mapping[str, StatusCondition], now: str
) -> list[StatusCondition]:
    """Returns the conditions. The time of a condition stays the same while its status does."""
    return [
        StatusCondition(
            type=finding.type,
            status=finding.status,
            reason=finding.reason,
            message=finding.message[:MAX_MESSAGE_CHARACTERS],
            last_transition_time=_time(finding, current.get(finding.type), now),
            observed_generation=generation,
        )
        for finding in findings
    ]


def _time(finding: Finding, current: StatusCondition | None, now: str) -> str:
    return current.last_transition_time if current is not None and current.status == finding.status else now


def findings(status: AppStatus) -> list[Finding]:
    """Returns all conditions of a status, none of which is missing."""
    return [
        _accepted(status),
        _planned(status),
        _progressing(status),
        _available(status),
        _ready(status),
        _replicas_ready(status),
        _degraded(status),
    ]


def phase_of(progressing: StatusCondition) -> tuple[Phase, FailureReason | None]:
    """Returns the phase, and the reason for a failure."""
    if progressing.status == "True":
        return Phase.SERVING if progressing.reason == "Scaling" else Phase.STARTING, None
    phase = _PHASE_REASONS.get(progressing.reason, Phase.PENDING)
    failures: tuple[str, ...] = tuple(FailureReason)
    return phase, FailureReason(progressing.reason) if progressing.reason in failures else None


def step_of(progressing: StatusCondition) -> PlanningStep | None:
    """Returns the step before the executors start."""
    steps: tuple[str, ...] = tuple(PlanningStep)
    return PlanningStep(progressing.reason) if progressing.reason in steps else None


def _accepted(status: AppStatus) -> Finding:
    if status.phase is Phase.FAILED and status.reason in NOT_ACCEPTED:
        return Finding("Accepted", "False", status.reason, status.message)
    if status.phase is Phase.PENDING or (status.phase is Phase.STARTING and not status.groups):
        return Finding("Accepted", "Unknown", "Loading", status.message)
    return Finding("Accepted", "True", "Valid", "the app can be loaded")


def _planned(status: AppStatus) -> Finding:
    if status.phase is Phase.FAILED and status.reason in NOT_PLANNED:
        return Finding("Planned", "False", status.reason, status.message)
    accepted = _accepted(status)
    if accepted.status == "True" and status.cells is not None:
        cells = "1 cell" if status.cells == 1 else f"{status.cells} cells"
        return Finding("Planned", "True", "Cells", f"the plan of the app runs {cells}")
    if accepted.status == "True":
        return Finding("Planned", "True", "OneCell", "the executors of the app are one cell")
    return Finding("Planned", "Unknown", "NotAccepted", "the app is not accepted")


def _progressing(status: AppStatus) -> Finding:
    match status.phase:
        case Phase.PENDING:
            return Finding("Progressing", "Unknown", "Pending", status.message)
        case Phase.STARTING:
            return Finding("Progressing", "True", _starting_reason(status), status.message)
        case Phase.SERVING if _waits(status.groups):
            return Finding("Progressing", "True", "Scaling", status.message)
        case Phase.SERVING:
            return Finding("Progressing", "False", "Complete", status.message)
        case Phase.PARKED:
            return Finding("Progressing", "False", "ScaledToZero", status.message)
        case Phase.FAILED:
            return Finding("Progressing", "False", status.reason or "Failed", status.message)


def _starting_reason(status: AppStatus) -> str:
    if status.step is not None:
        return status.step
    if not status.groups:
        return "Loading"
    if (obstructed := next(_obstructed(status.groups), None)) is not None:
        return obstructed.reason
    reasons = (replica.reason for group in status.groups for replica in group.replicas if replica.reason)
    return next(reasons, "Starting" if status.serving_generation is None else "RollingOut")


def _available(status: AppStatus) -> Finding:
    generation = status.serving_generation
    if status.suspended:
        return Finding("Available", "False", "Suspended", status.suspended)
    if status.phase is Phase.PARKED:
        return Finding("Available", "False", "ScaledToZero", "the app has 0 replicas")
    if generation is None:
        return Finding("Available", "False", "NoRoute", "no generation serves")
    if status.unreachable:
        return Finding("Available", "False", "NoEndpoints", status.unreachable)
    if status.phase is Phase.STARTING and generation == status.generation:
        return Finding("Available", "False", "ReplicasMissing", status.message)
    return Finding("Available", "True", "Serving", f"generation {generation} serves")


def _ready(status: AppStatus) -> Finding:
    match status.phase:
        case Phase.PENDING:
            return Finding("Ready", "Unknown", "Pending", status.message)
        case Phase.SERVING if status.suspended:
            return Finding("Ready", "False", "Suspended", status.suspended)
        case Phase.SERVING:
            return Finding("Ready", "True", "Serving", status.message)
        case _:
            progressing = _progressing(status)
            return Finding("Ready", "False", progressing.reason, status.message)


def _replicas_ready(status: AppStatus) -> Finding:
    if status.phase not in (Phase.SERVING, Phase.PARKED):
        serving = _ready(status)
        return Finding("ReplicasReady", serving.status, serving.reason, serving.message)
    if _waits(status.groups):
        ready, wanted = sum(group.ready for group in status.groups), sum(group.wanted for group in status.groups)
        running = sum(len(group.replicas) for group in status.groups)
        message = f"{ready} of {wanted} replicas are ready, and {running} run"
        return Finding("ReplicasReady", "False", "Scaling", message)
    return Finding("ReplicasReady", "True", "Complete", "all replicas are ready, and no others run")


def _degraded(status: AppStatus) -> Finding:
    if status.phase is Phase.FAILED:
        message = "\n".join([status.message, *status.logs[-DEGRADED_LOG_LINES:]])
        return Finding("Degraded", "True", status.reason or "Failed", message)
    if status.suspended:
        return Finding("Degraded", "True", "Suspended", status.suspended)
    failed = next(_failures(status.groups), None)
    if failed is not None:
        return Finding("Degraded", "True", "ReplicaFailed", failed)
    if (obstructed := next(_obstructed(status.groups), None)) is not None:
        return Finding("Degraded", "True", obstructed.reason, f"{obstructed.id}: {obstructed.message}")
    if status.phase is Phase.SERVING and any(_missing(group) for group in status.groups):
        return Finding("Degraded", "True", "ReplicasMissing", "fewer replicas run than are desired")
    return Finding("Degraded", "False", "AsDesired")


def _waits(groups: Iterable[GroupStatus]) -> bool:
    """Whether replicas start, or more replicas are ready than are desired."""
    return any(group.ready != group.wanted or len(group.replicas) != group.wanted for group in groups)


def _missing(group: GroupStatus) -> bool:
    alive = sum(replica.state in (ReplicaState.STARTING, ReplicaState.READY) for replica in group.replicas)
    return alive < group.wanted


def _obstructed(groups: Iterable[GroupStatus]) -> Iterator[ReplicaStatus]:
    """Yields the replicas that will probably not serve until something else changes."""
    for group in groups:
        for replica in group.replicas:
            if replica.state in (ReplicaState.STARTING, ReplicaState.READY) and replica.reason in OBSTACLES:
                yield replica


def _failures(groups: Iterable[GroupStatus]) -> Iterator[str]:
    for group in groups:
        for replica in group.replicas:
            if replica.state is ReplicaState.FAILED:
                yield f"{replica.id}: {replica.message}" if replica.message else f"{replica.id} has failed"

"""Conversion between `App.status` and the status of the stored record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from cornserve.app.record import AppStatus, GroupStatus, ReplicaExit, ReplicaState, ReplicaStatus
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.app_status import (
    MAX_EXIT_MESSAGE_CHARACTERS,
    MAX_LISTED_EXECUTORS,
    MAX_LISTED_REPLICAS,
    MAX_LOG_LINE_CHARACTERS,
    MAX_LOG_LINES,
    MAX_OPTION_CHARACTERS,
    MAX_REPLICA_MESSAGE_CHARACTERS,
    AppResourceStatus,
    ExecutorSection,
    ExitSection,
    ReplicaSection,
    StatusCondition,
)
from cornserve.kubernetes_resources.camel_case import from_json, to_json
from cornserve.kubernetes_resources.conditions import findings, phase_of, step_of, with_times
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL
from cornserve.kubernetes_resources.spec_mapping import AppResourceError
from cornserve.validation_errors import describe_all

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

_STATES: dict[ReplicaState, Literal["Starting", "Ready", "Draining", "Failed"]] = {
    ReplicaState.STARTING: "Starting",
    ReplicaState.READY: "Ready",
    ReplicaState.DRAINING: "Draining",
    ReplicaState.FAILED: "Failed",
}


def encode_status(
    status: AppStatus, current: JsonObject | None = None, *, now: datetime | None = None, url: str = ""
) -> JsonObject:
    """Returns `App.status`. An unchanged state returns the `current` status: there is nothing to write.

    Addresses of replicas are left out, messages and lists are cut to their limits.
    """
    if status == AppStatus():
        return {}
    time = (now or datetime.now(UTC)).strftime(_TIME_FORMAT)
    conditions = {condition.type: condition for condition in _current_conditions(current or {})}
    replicas = [_running(group) for group in status.groups]
    keys = sorted({group.key for group in status.groups})
    return to_json(
        AppResourceStatus(
            observed_generation=status.generation,
            failed_code=status.failed_code,
            serving_generation=status.serving_generation,
            cells=status.cells,
            desired_replicas=_of_app(status, [group.wanted for group in status.groups]),
            replicas=_of_app(status, replicas),
            ready_replicas=_of_app(status, [group.ready for group in status.groups]),
            gpus=sum(group.gpus * count for group, count in zip(status.groups, replicas, strict=True)),
            selector=f"{EXECUTOR_LABEL} in ({','.join(keys)})" if keys else None,
            url=url or None,
            conditions=with_times(findings(status), status.generation, conditions, time),
            executors=[_executor(group) for group in status.groups[:MAX_LISTED_EXECUTORS]],
            exits=[_exit_section(exit) for exit in status.exits],
            adaptation=status.adaptation,
            logs=[line[:MAX_LOG_LINE_CHARACTERS] for line in status.logs[-MAX_LOG_LINES:]],
        )
    )


def decode_status(status: JsonObject) -> AppStatus:
    """Returns the record's status for `App.status`, without addresses of replicas.

    Raises `AppResourceError` if the status is not one that `encode_status` has written.
    """
    try:
        resource = from_json(AppResourceStatus, status)
    except ValidationError as error:
        raise AppResourceError(f"status: {describe_all(error.errors())}") from error
    conditions = {condition.type: condition for condition in resource.conditions}
    progressing, available = conditions.get("Progressing"), conditions.get("Available")
    if progressing is None:
        return AppStatus()
    phase, reason = phase_of(progressing)
    return AppStatus(
        phase=phase,
        generation=resource.observed_generation or 0,
        step=step_of(progressing),
        reason=reason,
        failed_code=resource.failed_code,
        message=progressing.message,
        logs=resource.logs,
        groups=[_group(executor) for executor in resource.executors],
        exits=[_exit(section) for section in resource.exits],
        serving_generation=resource.serving_generation,
        cells=resource.cells,
        adaptation=resource.adaptation,
        suspended=_message_if(available, "Suspended"),
        unreachable=_message_if(available, "NoEndpoints"),
    )


def _message_if(condition: StatusCondition | None, reason: str) -> str:
    return condition.message if condition is not None and condition.reason == reason else ""


def _current_conditions(current: JsonObject) -> Sequence[StatusCondition]:
    try:
        return from_json(AppResourceStatus, current).conditions
    except ValidationError:
        return ()  # the status is replaced


def _of_app(status: AppStatus, counts: list[int]) -> int:
    """Returns the app's number of replicas, given that of each executor. Those of a planned app differ by plan."""
    return min(counts, default=0) if status.cells is None else sum(counts)


def _running(group: GroupStatus) -> int:
    return sum(replica.state is not ReplicaState.DRAINING for replica in group.replicas)


def _executor(group: GroupStatus) -> ExecutorSection:
    return ExecutorSection(
        key=group.key,
        name=group.executor,
        desired=group.wanted,
        ready=group.ready,
        gpus=group.gpus,
        apps=group.apps,
        cell=group.cell,
        option=group.option[:MAX_OPTION_CHARACTERS],
        replicas=[_replica(replica) for replica in _listed(group.replicas)],
    )


def _listed(replicas: Iterable[ReplicaStatus]) -> list[ReplicaStatus]:
    return sorted(replicas, key=lambda replica: replica.id)[:MAX_LISTED_REPLICAS]


def _replica(replica: ReplicaStatus) -> ReplicaSection:
    message = replica.message[:MAX_REPLICA_MESSAGE_CHARACTERS]
    return ReplicaSection(name=replica.id, state=_STATES[replica.state], message=message, reason=replica.reason)


def _exit_section(exit: ReplicaExit) -> ExitSection:
    time, message = exit.time.strftime(_TIME_FORMAT), exit.message[:MAX_EXIT_MESSAGE_CHARACTERS]
    return ExitSection(replica=exit.replica, executor=exit.group, time=time, message=message)


def _exit(section: ExitSection) -> ReplicaExit:
    time = datetime.fromisoformat(section.time)
    return ReplicaExit(replica=section.replica, group=section.executor, time=time, message=section.message)


def _group(executor: ExecutorSection) -> GroupStatus:
    states = {name: state for state, name in _STATES.items()}
    return GroupStatus(
        key=executor.key,
        executor=executor.name,
        gpus=executor.gpus,
        apps=executor.apps,
        cell=executor.cell,
        option=executor.option,
        wanted=executor.desired,
        replicas=[
            ReplicaStatus(id=replica.name, state=states[replica.state], message=replica.message, reason=replica.reason)
            for replica in executor.replicas
        ],
    )

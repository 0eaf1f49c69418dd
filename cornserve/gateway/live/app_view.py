"""The view of an app: its record, corrected by what this gateway knows about the replicas.

The controller writes the record. If it cannot, for example because the disk is full, the record may still contain a
dead replica as ready.
"""

from __future__ import annotations

from cornserve.app.record import AppStatus, AppView, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.control.store.base import AppRecord
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.request.replica_pool import ReplicaPool

_MESSAGE = "the gateway cannot reach it"


def app_view(record: AppRecord, context: GatewayContext) -> AppView:
    return AppView(
        name=record.name,
        uid=record.uid,
        generation=record.generation,
        version=record.version,
        spec=record.spec,
        status=_corrected(record.status, context.replicas, context.apps.suspension(record.name)),
        moved_streams=context.metrics.moved_streams(record.name),
        left_invocations=_left_invocations(record.name, context),
    )


def _left_invocations(name: str, context: GatewayContext) -> int:
    served = context.apps.served().get(name)
    return 0 if served is None else context.replicas.left_invocations(served.route.group_keys)


def _corrected(status: AppStatus, replicas: ReplicaPool, suspended: str) -> AppStatus:
    groups = [_corrected_group(group, replicas) for group in status.groups]
    if groups == status.groups and suspended == status.suspended:
        return status
    lost = [group.key for group in groups if group.wanted and not group.ready]
    changes: dict[str, object] = {"groups": groups, "suspended": suspended}
    if lost and status.phase is Phase.SERVING:
        changes |= {"phase": Phase.STARTING, "message": f"the gateway cannot reach any executor of {', '.join(lost)}"}
    return status.model_copy(update=changes)


def _corrected_group(group: GroupStatus, replicas: ReplicaPool) -> GroupStatus:
    return group.model_copy(update={"replicas": [_corrected_replica(replica, replicas) for replica in group.replicas]})


def _corrected_replica(replica: ReplicaStatus, replicas: ReplicaPool) -> ReplicaStatus:
    is_lost = replica.endpoint is not None and replicas.is_unreachable(replica.endpoint)
    if replica.state is not ReplicaState.READY or not is_lost:
        return replica
    return replica.model_copy(update={"state": ReplicaState.STARTING, "message": _MESSAGE})

"""The ids of the replicas of a machine. They contain the key of the replica's group."""

from __future__ import annotations

from uuid import uuid4

from cornserve.control.launcher.base import GroupKey, ReplicaId


def new_replica_id(group: GroupKey) -> ReplicaId:
    return ReplicaId(f"{group}-{uuid4().hex[:12]}")


def group_of(replica: ReplicaId) -> GroupKey:
    return GroupKey(replica.rpartition("-")[0])

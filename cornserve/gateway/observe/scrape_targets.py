"""Prometheus HTTP service discovery: the metrics endpoints of all processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel

from cornserve.app.record import GroupStatus, ReplicaStatus


class TargetGroup(BaseModel):
    """An entry of the service discovery response."""

    targets: list[str]
    labels: dict[str, str]


def scrape_targets(
    gateways: Sequence[str], controller: str | None, apps: Mapping[str, list[GroupStatus]]
) -> list[TargetGroup]:
    """Returns each process once. An executor that several apps share has all their names in its `app` label."""
    found = [TargetGroup(targets=[*gateways], labels={"component": "gateway"})]
    if controller is not None:
        found.append(TargetGroup(targets=[controller], labels={"component": "controller"}))
    users: dict[str, list[str]] = {}
    replicas: dict[str, tuple[str, ReplicaStatus]] = {}
    for app, group, replica in _replicas(apps):
        users.setdefault(replica.id, []).append(app)
        replicas[replica.id] = (group, replica)
    for id, (group, replica) in replicas.items():
        if replica.metrics is not None:
            labels = {"component": "executor", "app": ",".join(sorted(users[id])), "group": group, "replica": id}
            found.append(TargetGroup(targets=[replica.metrics], labels=labels))
    return found


def _replicas(apps: Mapping[str, list[GroupStatus]]) -> Iterator[tuple[str, str, ReplicaStatus]]:
    for app, groups in apps.items():
        for group in groups:
            for replica in group.replicas:
                yield app, group.key, replica

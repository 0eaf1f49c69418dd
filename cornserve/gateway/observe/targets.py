"""Where Prometheus finds the metrics of all processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from cornserve.app.record import GroupStatus, ReplicaStatus


class Targets(BaseModel):
    """An entry of Prometheus' HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


def scrape_targets(gateway: str, controller: str | None, apps: Mapping[str, list[GroupStatus]]) -> list[Targets]:
    """Each process once, also an executor that several apps share."""
    found = [Targets(targets=[gateway], labels={"process": "gateway"})]
    if controller is not None:
        found.append(Targets(targets=[controller], labels={"process": "controller"}))
    users: dict[str, list[str]] = {}
    replicas: dict[str, tuple[str, ReplicaStatus]] = {}
    for app, group, replica in _replicas(apps):
        users.setdefault(replica.id, []).append(app)
        replicas[replica.id] = (group, replica)
    for id, (group, replica) in replicas.items():
        if replica.metrics is not None:
            labels = {"process": "executor", "app": ",".join(sorted(users[id])), "group": group, "replica": id}
            found.append(Targets(targets=[replica.metrics], labels=labels))
    return found


def _replicas(apps: Mapping[str, list[GroupStatus]]) -> Iterator[tuple[str, str, ReplicaStatus]]:
    for app, groups in apps.items():
        for group in groups:
            for replica in group.replicas:
                yield app, group.key, replica

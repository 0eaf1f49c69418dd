"""The replicas of all groups, as the informers see them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from cornserve.app.record import MAX_EXITS, ReplicaExit, ReplicaState
from cornserve.concurrency import Broadcast
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.launcher.kubernetes.names import RETIRED_ANNOTATION
from cornserve.control.launcher.kubernetes.pod_observation import is_terminating, observe_exit, observe_pod
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.pods import find_condition, has_ended
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL
from cornserve.kubernetes_resources.replica_reason import ReplicaReason

T = TypeVar("T", list[Replica], dict[ReplicaId, str])


class ObservedGroups:
    """Keeps the replicas of each group. A change costs as much as the groups that it changes, and not as all."""

    def __init__(self, pods: Informer, deployments: Informer) -> None:
        self._pods = pods
        self._deployments = deployments
        self._changed_pods = pods.track_changes()
        self._changed_deployments = deployments.track_changes()
        self._wanted: dict[GroupKey, int] = {}
        """The number of replicas of the groups that were applied."""
        self._group_of: dict[str, GroupKey] = {}
        """The group of each pod."""
        self._by_pod = defaultdict[GroupKey, dict[str, Replica]](dict)
        """The replica of each pod, by group."""
        self._started: dict[str, Replica] = {}
        """The replica of each pod that has been ready, as it was then."""
        self._exits: dict[GroupKey, deque[ReplicaExit]] = {}
        self._replicas: dict[GroupKey, list[Replica]] = {}
        self._ready: set[GroupKey] = set()
        """The groups with a ready replica."""
        self._loading: dict[GroupKey, dict[ReplicaId, str]] = {}
        self._outdated: set[GroupKey] = set()
        """Groups whose replicas must be listed again."""
        self.changes = Broadcast()

    def set_wanted(self, key: GroupKey, replicas: int) -> None:
        if self._wanted.get(key, 0) == replicas:
            return
        if replicas:
            self._wanted[key] = replicas
        else:
            del self._wanted[key]
        self._outdated.add(key)
        self.changes.notify()

    def keys(self) -> set[GroupKey]:
        """Returns the keys of all groups that were applied or exist."""
        return self._wanted.keys() | {GroupKey(name) for name in self._deployments.objects}

    async def follow(self, informer: Informer) -> None:
        """Notifies of the changes of an informer. Runs until cancelled."""
        while True:
            await informer.next_change().wait()
            self.changes.notify()

    def replicas(self) -> list[Replica]:
        """Returns one replica for each pod, and one for each pod that Kubernetes has not created yet."""
        self._update()
        return list(chain.from_iterable(self._replicas.values()))

    def ready_groups(self) -> Set[GroupKey]:
        self._update()
        return self._ready

    def exits(self, key: GroupKey) -> Sequence[ReplicaExit]:
        """Returns the last exits of the group's replicas, oldest first, without those that were stopped on purpose."""
        self._update()
        return self._exits.get(key, ())

    def forget_exits(self, key: GroupKey) -> None:
        self._exits.pop(key, None)

    def loading(self) -> dict[ReplicaId, str]:
        """Returns the endpoint of each executor that runs and is not ready yet."""
        self._update()
        return {replica: endpoint for group in self._loading.values() for replica, endpoint in group.items()}

    def _update(self) -> None:
        """Applies the changes since the last update."""
        self._outdated.update(map(GroupKey, self._changed_deployments))
        self._changed_deployments.clear()
        for name in self._changed_pods:
            self._update_pod(name)
        self._changed_pods.clear()
        for key in self._outdated:
            self._update_group(key)
        self._outdated.clear()

    def _update_pod(self, name: str) -> None:
        if (key := self._group_of.pop(name, None)) is not None:
            self._by_pod[key].pop(name, None)
            self._outdated.add(key)
        if (pod := self._pods.objects.get(name)) is not None:
            key = GroupKey(pod["metadata"]["labels"][EXECUTOR_LABEL])
            self._group_of[name] = key
            self._by_pod[key][name] = self._with_first_start(name, observe_pod(pod))
            self._outdated.add(key)
            self._add_exit(key, observe_exit(pod))
        else:
            self._started.pop(name, None)

    def _add_exit(self, key: GroupKey, exit: ReplicaExit | None) -> None:
        known = self._exits.get(key, ())
        if exit is not None and all(exit.replica != each.replica for each in known):
            self._exits[key] = deque(sorted((*known, exit), key=lambda each: each.time), maxlen=MAX_EXITS)

    def _with_first_start(self, name: str, replica: Replica) -> Replica:
        """Returns the replica with the times of its start, also if it is ready again after it was not."""
        if replica.state is not ReplicaState.READY:
            return replica
        started = self._started.get(name)
        if started is None or started.id != replica.id:
            self._started[name] = started = replica
        return replace(replica, message=started.message)

    def _update_group(self, key: GroupKey) -> None:
        replicas = list(self._list(key))
        loading = {
            replica.id: replica.endpoint
            for replica in replicas
            if replica.state is ReplicaState.STARTING and replica.endpoint is not None
        }
        is_ready = any(replica.state is ReplicaState.READY for replica in replicas)
        (self._ready.add if is_ready else self._ready.discard)(key)
        _set_or_remove(self._replicas, key, replicas)
        _set_or_remove(self._loading, key, loading)
        if not self._by_pod[key]:
            del self._by_pod[key]

    def _list(self, key: GroupKey) -> Iterator[Replica]:
        ended, active = [], 0
        for name, replica in self._by_pod[key].items():
            pod = self._pods.objects[name]
            if has_ended(pod) and not is_terminating(pod):
                ended.append(replica)
                continue
            yield replica
            active += not is_terminating(pod)
        wanted = self._wanted_replicas(key)
        missing = max(0, wanted - active)
        yield from ended[:missing]
        failure = find_condition(self._deployments.objects.get(key, {}), "ReplicaFailure").get("message")
        # Pods that an upgrade of the image adds may be refused, too, while the replaced ones serve.
        added = 1 if failure and wanted and not missing else 0
        yield from _uncreated(key, missing - len(ended[:missing]) + added, failure)

    def _wanted_replicas(self, key: GroupKey) -> int:
        """Returns the number of replicas that was applied, or that an earlier launcher has applied."""
        deployment = self._deployments.objects.get(key)
        if key in self._wanted or deployment is None:
            return self._wanted.get(key, 0)
        is_retired = deployment["metadata"].get("annotations", {}).get(RETIRED_ANNOTATION) == "true"
        return 0 if is_retired else int(deployment["spec"].get("replicas", 1))


def _uncreated(key: GroupKey, count: int, failure: str | None) -> Iterator[Replica]:
    for number in range(count):
        yield Replica(
            ReplicaId(f"{key}.new-{number}"),
            key,
            ReplicaState.STARTING,
            failure or "waiting until Kubernetes creates its pod",
            reason=ReplicaReason.FAILED_CREATE if failure else ReplicaReason.SCHEDULING,
        )


def _set_or_remove(groups: dict[GroupKey, T], key: GroupKey, value: T) -> None:
    if value:
        groups[key] = value
    else:
        groups.pop(key, None)

"""The replicas of all groups, as the informers see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cornserve.app.record import ReplicaState
from cornserve.concurrency import Broadcast
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.launcher.kubernetes.names import RETIRED_ANNOTATION
from cornserve.control.launcher.kubernetes.pod_observation import (
    ReplicaReason,
    has_ended,
    is_terminating,
    observe_pod,
)
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.pods import find_condition
from cornserve.kubernetes.resources import JsonObject


class ObservedGroups:
    def __init__(self, pods: Informer, deployments: Informer) -> None:
        self._pods = pods
        self._deployments = deployments
        self._wanted: dict[GroupKey, int] = {}
        """The number of replicas of the groups that were applied."""
        self._observations: dict[str, tuple[str, Replica]] = {}
        """The replica of each pod, with the version of the pod that it follows from."""
        self.changes = Broadcast()

    def set_wanted(self, key: GroupKey, replicas: int) -> None:
        if self._wanted.get(key, 0) == replicas:
            return
        if replicas:
            self._wanted[key] = replicas
        else:
            del self._wanted[key]
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
        pods = self._pods.objects
        observations = {name: self._observe(name, pod) for name, pod in pods.items()}
        self._observations = observations
        replicas, ended, active = [], defaultdict[GroupKey, list[Replica]](list), defaultdict[GroupKey, int](int)
        for name, pod in pods.items():
            replica = observations[name][1]
            if has_ended(pod) and not is_terminating(pod):
                ended[replica.group].append(replica)
                continue
            replicas.append(replica)
            active[replica.group] += not is_terminating(pod)
        for key, wanted in self._all_wanted().items():
            missing = max(0, wanted - active[key])
            shown = ended[key][:missing]
            replicas += [*shown, *self._uncreated(key, missing - len(shown))]
        return replicas

    def loading(self) -> dict[ReplicaId, str]:
        """Returns the endpoint of each executor that runs and is not ready yet."""
        return {
            replica.id: replica.endpoint
            for replica in self.replicas()
            if replica.state is ReplicaState.STARTING and replica.endpoint is not None
        }

    def _observe(self, name: str, pod: JsonObject) -> tuple[str, Replica]:
        version = pod["metadata"]["resourceVersion"]
        known = self._observations.get(name)
        return known if known is not None and known[0] == version else (version, observe_pod(pod))

    def _all_wanted(self) -> dict[GroupKey, int]:
        adopted = {
            GroupKey(name): deployment["spec"].get("replicas", 1)
            for name, deployment in self._deployments.objects.items()
            if deployment["metadata"].get("annotations", {}).get(RETIRED_ANNOTATION) != "true"
        }
        return adopted | self._wanted

    def _uncreated(self, key: GroupKey, count: int) -> Iterator[Replica]:
        failure = find_condition(self._deployments.objects.get(key, {}), "ReplicaFailure").get("message")
        for number in range(count):
            yield Replica(
                ReplicaId(f"{key}.new-{number}"),
                key,
                ReplicaState.STARTING,
                failure or "waiting until Kubernetes creates its pod",
                reason=ReplicaReason.SCHEDULING,
            )

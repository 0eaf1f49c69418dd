from __future__ import annotations

from cornserve.app.record import GroupStatus, ReplicaState, ReplicaStatus
from cornserve.gateway.observe.scrape_targets import scrape_targets


def group(key: str, *replicas: str) -> GroupStatus:
    statuses = [ReplicaStatus(id=id, state=ReplicaState.READY, metrics=f"{id}:9000") for id in replicas]
    return GroupStatus(key=key, wanted=len(statuses), replicas=statuses)


def test_each_process_is_one_target() -> None:
    apps = {"b": [group("encoder", "e"), group("llm", "l0", "l1")], "a": [group("llm", "l0", "l1")]}

    targets = scrape_targets(["gateway:8000", "gateway:8001"], "controller:9000", apps)

    assert [(target.targets, target.labels) for target in targets] == [
        (["gateway:8000", "gateway:8001"], {"component": "gateway"}),
        (["controller:9000"], {"component": "controller"}),
        (["e:9000"], {"component": "executor", "app": "b", "group": "encoder", "replica": "e"}),
        (["l0:9000"], {"component": "executor", "app": "a,b", "group": "llm", "replica": "l0"}),
        (["l1:9000"], {"component": "executor", "app": "a,b", "group": "llm", "replica": "l1"}),
    ]


def test_a_starting_replica_is_not_a_target() -> None:
    starting = ReplicaStatus(id="r", state=ReplicaState.STARTING)

    targets = scrape_targets(["gateway:8000"], None, {"a": [GroupStatus(key="k", wanted=1, replicas=[starting])]})

    assert [target.labels["component"] for target in targets] == ["gateway"]

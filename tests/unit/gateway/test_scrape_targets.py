from __future__ import annotations

from cornserve.app.record import GroupStatus, ReplicaState, ReplicaStatus
from cornserve.gateway.observe.scrape_targets import scrape_targets


def group(key: str, *replicas: str) -> GroupStatus:
    found = [ReplicaStatus(id=id, state=ReplicaState.READY, metrics=f"{id}:9000") for id in replicas]
    return GroupStatus(key=key, wanted=len(found), replicas=found)


def test_every_process_is_a_target_once() -> None:
    apps = {"b": [group("encoder", "e"), group("llm", "l0", "l1")], "a": [group("llm", "l0", "l1")]}

    targets = scrape_targets("gateway:8000", "controller:9000", apps)

    assert [(it.targets, it.labels) for it in targets] == [
        (["gateway:8000"], {"component": "gateway"}),
        (["controller:9000"], {"component": "controller"}),
        (["e:9000"], {"component": "executor", "app": "b", "group": "encoder", "replica": "e"}),
        (["l0:9000"], {"component": "executor", "app": "a,b", "group": "llm", "replica": "l0"}),
        (["l1:9000"], {"component": "executor", "app": "a,b", "group": "llm", "replica": "l1"}),
    ]


def test_a_replica_that_does_not_listen_yet_is_no_target() -> None:
    starting = ReplicaStatus(id="r", state=ReplicaState.STARTING)

    targets = scrape_targets("gateway:8000", None, {"a": [GroupStatus(key="k", wanted=1, replicas=[starting])]})

    assert [it.labels["component"] for it in targets] == ["gateway"]

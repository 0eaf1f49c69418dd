from __future__ import annotations

from cornserve.app.record import AppSpec, AppStatus, AppView, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.cli.deployment import Deployment


def view(*replicas: ReplicaStatus, phase: Phase = Phase.STARTING, message: str = "") -> AppView:
    groups = [GroupStatus(key="echo", wanted=1, replicas=list(replicas))] if replicas else []
    status = AppStatus(phase=phase, generation=1, message=message, groups=groups)
    return AppView(name="a", uid="u", generation=1, version=1, spec=AppSpec(model="m"), status=status)


def replica(state: ReplicaState, message: str = "", id_: str = "echo-1") -> ReplicaStatus:
    return ReplicaStatus(id=id_, state=state, message=message)


def test_every_step_of_a_replica_is_said_once() -> None:
    deployment = Deployment()
    loading = view(replica(ReplicaState.STARTING, "loading weights"))
    assert list(deployment.take(loading)) == ["echo-1: loading weights"]
    assert list(deployment.take(loading)) == []
    assert list(deployment.take(view(replica(ReplicaState.READY)))) == ["echo-1: ready"]


def test_a_replica_that_says_nothing_yet_is_not_mentioned() -> None:
    assert list(Deployment().take(view(replica(ReplicaState.STARTING)))) == []


def test_a_failure_has_its_reason_and_the_replacement_its_own_steps() -> None:
    deployment = Deployment()
    failed = replica(ReplicaState.FAILED, "exited with status 1")
    assert list(deployment.take(view(failed))) == ["echo-1: failed: exited with status 1"]
    other = replica(ReplicaState.STARTING, "loading weights", "echo-2")
    assert list(deployment.take(view(failed, other))) == ["echo-2: loading weights"]


def test_while_there_are_no_replicas_the_apps_message_is_said() -> None:
    deployment = Deployment()
    assert list(deployment.take(view(message="waiting for a GPU"))) == ["waiting for a GPU"]
    assert list(deployment.take(view(message="waiting for a GPU"))) == []
    assert list(deployment.take(view(message="out of memory", phase=Phase.FAILED))) == []

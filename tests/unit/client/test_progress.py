from __future__ import annotations

from cornserve.app.record import AppStatus, AppView, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.client.progress import Progress


def view(*replicas: ReplicaStatus, phase: Phase = Phase.STARTING, message: str = "") -> AppView:
    groups = [GroupStatus(key="echo", wanted=1, replicas=list(replicas))] if replicas else []
    status = AppStatus(phase=phase, generation=1, message=message, groups=groups)
    return AppView(name="a", uid="u", generation=1, version=1, spec=AppSpec(model=AppModel(id="m")), status=status)


def replica(state: ReplicaState, message: str = "", id_: str = "echo-1") -> ReplicaStatus:
    return ReplicaStatus(id=id_, state=state, message=message)


def test_each_step_of_a_replica_is_reported_once() -> None:
    progress = Progress()
    loading = view(replica(ReplicaState.STARTING, "loading weights"))
    assert list(progress.update(loading)) == ["echo-1: loading weights"]
    assert list(progress.update(loading)) == []
    assert list(progress.update(view(replica(ReplicaState.READY)))) == ["echo-1: ready"]


def test_a_replica_without_a_message_is_not_reported() -> None:
    assert list(Progress().update(view(replica(ReplicaState.STARTING)))) == []


def test_a_failure_and_the_steps_of_the_replacement_are_reported() -> None:
    progress = Progress()
    failed = replica(ReplicaState.FAILED, "exited with status 1")
    assert list(progress.update(view(failed))) == ["echo-1: failed: exited with status 1"]
    other = replica(ReplicaState.STARTING, "loading weights", "echo-2")
    assert list(progress.update(view(failed, other))) == ["echo-2: loading weights"]


def test_the_failure_of_an_older_generation_is_not_reported() -> None:
    failed = view(message="out of memory", phase=Phase.FAILED)

    assert list(Progress().update(failed.model_copy(update={"generation": 2}))) == []


def test_the_message_of_an_app_without_replicas_is_reported_once() -> None:
    progress = Progress()
    assert list(progress.update(view(message="waiting for a GPU"))) == ["waiting for a GPU"]
    assert list(progress.update(view(message="waiting for a GPU"))) == []
    assert list(progress.update(view(message="out of memory", phase=Phase.FAILED))) == []

from __future__ import annotations

from cornserve.app.record import AppSpec, AppStatus, AppView, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.client.progress import Progress


def view(*replicas: ReplicaStatus, phase: Phase = Phase.STARTING, message: str = "") -> AppView:
    groups = [GroupStatus(key="echo", wanted=1, replicas=list(replicas))] if replicas else []
    status = AppStatus(phase=phase, generation=1, message=message, groups=groups)
    return AppView(name="a", uid="u", generation=1, version=1, spec=AppSpec(model="m"), status=status)


def replica(state: ReplicaState, message: str = "", id_: str = "echo-1") -> ReplicaStatus:
    return ReplicaStatus(id=id_, state=state, message=message)


def test_every_step_of_a_replica_is_said_once() -> None:
    progress = Progress()
    loading = view(replica(ReplicaState.STARTING, "loading weights"))
    assert list(progress.take(loading)) == ["echo-1: loading weights"]
    assert list(progress.take(loading)) == []
    assert list(progress.take(view(replica(ReplicaState.READY)))) == ["echo-1: ready"]


def test_a_replica_that_says_nothing_yet_is_not_mentioned() -> None:
    assert list(Progress().take(view(replica(ReplicaState.STARTING)))) == []


def test_a_failure_has_its_reason_and_the_replacement_its_own_steps() -> None:
    progress = Progress()
    failed = replica(ReplicaState.FAILED, "exited with status 1")
    assert list(progress.take(view(failed))) == ["echo-1: failed: exited with status 1"]
    other = replica(ReplicaState.STARTING, "loading weights", "echo-2")
    assert list(progress.take(view(failed, other))) == ["echo-2: loading weights"]


def test_while_there_are_no_replicas_the_apps_message_is_said() -> None:
    progress = Progress()
    assert list(progress.take(view(message="waiting for a GPU"))) == ["waiting for a GPU"]
    assert list(progress.take(view(message="waiting for a GPU"))) == []
    assert list(progress.take(view(message="out of memory", phase=Phase.FAILED))) == []

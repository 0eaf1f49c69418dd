"""The replicas that follow from the statuses of pods."""

from __future__ import annotations

from typing import Any

import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.kubernetes.pod_observation import observe_exit, observe_pod, parse_replica_id

EARLY, START, LATER = "2026-01-01T10:00:00Z", "2026-01-01T10:00:01Z", "2026-01-01T10:05:00Z"
RUNNING = {"running": {"startedAt": START}}


def terminated(code: int, message: str = "", **more: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message, "startedAt": START} | more}


def pod(
    state: dict[str, Any] | None = None,
    *,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    ready: tuple[str, str] = ("False", EARLY),
    **status: Any,
) -> dict[str, Any]:
    container = {"name": "executor", "state": state, "lastState": last or {}, "restartCount": restarts}
    condition = {"type": "Ready", "status": ready[0], "lastTransitionTime": ready[1]}
    return {
        "metadata": {"name": "llm-1-x", "labels": {"cornserve.ai/executor": "llm-1"}},
        "spec": {"nodeName": "node-1"},
        "status": {
            "startTime": EARLY,
            "podIP": "10.0.0.1",
            "containerStatuses": [container] if state else [],
            "conditions": [condition],
        }
        | status,
    }


def test_a_ready_pod_has_endpoints() -> None:
    replica = observe_pod(pod(RUNNING, ready=("True", START)))
    assert (replica.state, replica.endpoint, replica.metrics) == (
        ReplicaState.READY,
        "10.0.0.1:9000",
        "10.0.0.1:9002",
    )
    assert observe_pod(pod(RUNNING, podIP="fd00::1")).endpoint == "[fd00::1]:9000"


@pytest.mark.parametrize(
    ("restarts", "message"),
    [(0, "loaded in 45 s (image and volumes 4 s, download 30 s, load 11 s)"), (1, "loaded in 11 s (load 11 s)")],
)
def test_a_ready_pod_reports_the_seconds_of_its_start(restarts: int, message: str) -> None:
    def at(second: int) -> str:
        return f"2026-01-01T10:00:{second:02}Z"

    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)},
        {"type": "Ready", "status": "True", "lastTransitionTime": at(46)},
    ]
    ended = {"exitCode": 0, "startedAt": at(4), "finishedAt": at(34)}
    downloads = [{"name": "download", "state": {"terminated": ended}}]
    running = {"running": {"startedAt": at(35)}}
    ready = pod(running, restarts=restarts, conditions=conditions, initContainerStatuses=downloads)
    assert observe_pod(ready).message == message


def test_a_terminating_pod_drains() -> None:
    terminating = pod(RUNNING, ready=("True", START))
    terminating["metadata"]["deletionTimestamp"] = LATER
    assert observe_pod(terminating).state is ReplicaState.DRAINING


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", "InsufficientCapacity"),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "InsufficientCapacity"),
        ('0/2 nodes are available: persistentvolumeclaim "models" not found.', "VolumeUnavailable"),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "VolumeUnavailable"),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", "VolumeUnavailable"),
        (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had volume node affinity conflict.",
            "InsufficientCapacity",
        ),
    ],
)
def test_the_scheduler_says_what_is_missing(words: str, reason: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    replica = observe_pod(pod(conditions=[condition]))
    assert (replica.state, replica.message, replica.reason) == (ReplicaState.STARTING, words, reason)


@pytest.mark.parametrize(
    ("state", "message", "reason"),
    [
        ({"waiting": {"reason": "ContainerCreating"}}, "creating its container", "PullingImage"),
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "a:1"'}},
            'ImagePullBackOff: Back-off pulling image "a:1"',
            "ImagePull",
        ),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}},
            'CreateContainerConfigError: secret "token" not found',
            "CreateContainerError",
        ),
        (RUNNING, "loading", "LoadingModel"),
    ],
)
def test_a_starting_pod_reports_its_activity(state: dict[str, Any], message: str, reason: str) -> None:
    replica = observe_pod(pod(state))
    assert (replica.state, replica.message, replica.reason) == (ReplicaState.STARTING, message, reason)


def test_an_init_container_of_a_pod_template_is_not_a_download() -> None:
    waiting = {"waiting": {"reason": "PodInitializing"}}
    failed = pod(waiting, initContainerStatuses=[{"name": "license", "state": terminated(1, "no")}])
    running = pod(waiting, initContainerStatuses=[{"name": "license", "state": {"running": {}}}])
    assert observe_pod(failed).reason == "CreateContainerError"
    assert observe_pod(running).reason == "PullingImage"


@pytest.mark.parametrize(
    ("download", "message", "reason"),
    [
        ({"state": {"running": {}}}, "download: running", "DownloadingModel"),
        ({"state": {"waiting": {"reason": "ErrImagePull"}}}, "download: ErrImagePull", "ImagePull"),
        (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(1, "no")},
            "download exited with status 1: no",
            "DownloadFailed",
        ),
        ({"state": terminated(0)}, "preparing its container", "PullingImage"),
    ],
)
def test_a_download_is_reported(download: dict[str, Any], message: str, reason: str) -> None:
    waiting = {"waiting": {"reason": "PodInitializing"}}
    replica = observe_pod(pod(waiting, initContainerStatuses=[{"name": "download", **download}]))
    assert (replica.state, replica.message, replica.reason) == (ReplicaState.STARTING, message, reason)


def test_a_sidecar_does_not_hide_what_the_executor_waits_for() -> None:
    sidecar = {"name": "proxy", "started": True, "state": {"running": {"startedAt": START}}}
    waiting = pod({"waiting": {"reason": "ImagePullBackOff"}}, initContainerStatuses=[sidecar])
    waiting["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
    assert observe_pod(waiting).reason == "ImagePull"


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (terminated(1, "INFO loading\nRuntimeError: no words"), "exited with status 1: RuntimeError: no words"),
        (terminated(1), "exited with status 1: its log is empty"),
        (terminated(137, "INFO loading"), "killed by signal 9 (Killed); its last log line: INFO loading"),
        (terminated(137, reason="OOMKilled"), "killed because it exceeded its memory limit; its log is empty"),
    ],
)
def test_the_reason_of_an_exit_is_reported(ended: dict[str, Any], message: str) -> None:
    replica = observe_pod(pod(ended))
    assert (replica.state, replica.message, replica.reason) == (ReplicaState.FAILED, message, "CrashLoop")


def test_a_crash_loop_has_the_last_error_and_the_delay() -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 1m20s restarting failed container=executor"}
    replica = observe_pod(pod({"waiting": waiting}, last=terminated(1, "ValueError: x"), restarts=3))
    assert replica.state is ReplicaState.FAILED
    assert (replica.restart_delay, replica.failures) == (80, 4)
    assert replica.message == "exited with status 1: ValueError: x"
    assert replica.id == "llm-1-x.3"


def test_status_2_shows_that_the_executor_cannot_start() -> None:
    assert observe_pod(pod(terminated(2, "no such model"))).cannot_start
    assert not observe_pod(pod(terminated(1, "no such model"))).cannot_start
    assert not observe_pod(pod(RUNNING, last=terminated(2, "no such model"), restarts=1)).cannot_start


@pytest.mark.parametrize(
    ("observed", "failures"),
    [
        (pod(RUNNING), 0),
        (pod(terminated(1)), 1),
        (pod(RUNNING, last=terminated(1), restarts=2), 2),
        (pod(terminated(1), restarts=2, ready=("False", LATER)), 0),
        (pod(terminated(1, startedAt="2026-01-01T10:06:00Z"), restarts=2, ready=("False", LATER)), 1),
        (pod(RUNNING, last=terminated(1), restarts=2, ready=("True", LATER)), 0),
    ],
)
def test_runs_that_ended_before_they_were_ready_are_counted(observed: dict[str, Any], failures: int) -> None:
    observed["status"]["containerStatuses"][0]["ready"] = observed["status"]["conditions"][0]["status"] == "True"
    assert observe_pod(observed).failures == failures


def test_an_evicted_pod_has_failed() -> None:
    evicted = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    replica = observe_pod(evicted)
    assert replica.state is ReplicaState.FAILED
    assert replica.message == "Evicted: The node was low on resource: memory."


@pytest.mark.parametrize(
    ("replica", "expected"), [("a-b", ("a-b", 0)), ("a-b.2", ("a-b", 2)), ("../x", ("", 0)), ("a.new-1", ("a", 0))]
)
def test_ids_name_pods(replica: str, expected: tuple[str, int]) -> None:
    assert parse_replica_id(ReplicaId(replica)) == expected


@pytest.mark.parametrize(
    ("state", "last", "restarts", "replica", "message"),
    [
        (terminated(137, reason="OOMKilled", finishedAt=LATER), None, 1, "llm-1-x.1", "exceeded its memory limit"),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            terminated(1, "no", finishedAt=LATER),
            1,
            "llm-1-x.1",
            "status 1",
        ),
        (RUNNING, terminated(137, finishedAt=LATER), 1, "llm-1-x", "signal 9 (Killed)"),
    ],
)
def test_the_last_exit_of_a_pod_has_the_replica_and_the_reason(
    state: dict[str, Any], last: dict[str, Any] | None, restarts: int, replica: str, message: str
) -> None:
    exit = observe_exit(pod(state, last=last, restarts=restarts))
    assert exit is not None
    assert (exit.replica, exit.group, exit.time.isoformat()) == (replica, "llm-1", "2026-01-01T10:05:00+00:00")
    assert message in exit.message


def test_an_evicted_pod_is_an_exit_and_a_pod_that_drains_is_none() -> None:
    evicted = observe_exit(pod(None, ready=("False", LATER), phase="Failed", reason="Evicted", message="low on memory"))
    assert evicted is not None
    assert (evicted.replica, evicted.message) == ("llm-1-x", "Evicted: low on memory")
    draining = pod(terminated(0, finishedAt=LATER))
    draining["metadata"]["deletionTimestamp"] = LATER
    assert observe_exit(draining) is None
    assert observe_exit(pod(RUNNING)) is None

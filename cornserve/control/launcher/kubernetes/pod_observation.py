"""The replica that a pod runs, as its status shows it."""

from __future__ import annotations

import re
import signal
from datetime import datetime
from typing import Any

from cornserve.app.record import ReplicaExit, ReplicaState
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.launcher.kubernetes.names import CONTAINER, DOWNLOAD_CONTAINER, INVOCATION_PORT, METRICS_PORT
from cornserve.control.launcher.kubernetes.start_times import describe_start
from cornserve.control.launcher.log_excerpts import cut_line, find_error
from cornserve.exit_status import CANNOT_START
from cornserve.kubernetes.pods import find_condition, has_ended, pod_endpoint
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL
from cornserve.kubernetes_resources.replica_reason import ReplicaReason

FIRST_SYNC_SECONDS = 2.0
"""A kubelet writes the first Ready condition of a pod within this time after the pod's start time."""

_KILLED = 128
"""Exit codes above this number are those of processes that a signal has killed."""

_BACK_OFF = re.compile(r"back-off (?:(\d+)m)?(?:(\d+)s)? restarting")

_WAITING = {"ContainerCreating": "creating its container", "PodInitializing": "preparing its container"}
_WAITING_REASONS = {
    **dict.fromkeys(_WAITING, ReplicaReason.PULLING_IMAGE),
    **dict.fromkeys(
        (
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
            "ErrImageNeverPull",
            "ImageInspectError",
            "RegistryUnavailable",
            "SignatureValidationFailed",
        ),
        ReplicaReason.IMAGE_PULL,
    ),
}
"""The reasons by the kubelet's reason of a waiting container. All others are errors of the container."""

_VOLUME = re.compile("volume|storageclass", re.IGNORECASE)
"""Found in the scheduler's messages about volumes and their claims."""
_INSUFFICIENT = "Insufficient "
"""Found in the scheduler's messages about capacity, such as `1 Insufficient cpu`."""


def replica_id(pod: str, restarts: int) -> ReplicaId:
    """Returns the id of one run of a pod's container."""
    return ReplicaId(f"{pod}.{restarts}" if restarts else pod)


def parse_replica_id(replica: ReplicaId) -> tuple[str, int]:
    """Returns the name of the pod and the number of earlier runs of its container."""
    pod, _, restarts = replica.partition(".")
    return pod, int(restarts) if restarts.isascii() and restarts.isdigit() else 0


def is_unschedulable(pod: JsonObject) -> bool:
    """Whether no node can run the pod."""
    return find_condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def is_scheduled(pod: JsonObject) -> bool:
    return bool(pod.get("spec", {}).get("nodeName"))


def is_terminating(pod: JsonObject) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def container_status(pod: JsonObject) -> JsonObject:
    statuses: list[JsonObject] = pod.get("status", {}).get("containerStatuses") or []
    return next((each for each in statuses if each["name"] == CONTAINER), {})


def observe_pod(pod: JsonObject) -> Replica:
    """Returns the replica of a pod of an executor group."""
    metadata, status = pod["metadata"], container_status(pod)
    restarts = int(status.get("restartCount", 0))
    state, message, reason = _state(pod, status)
    address = pod.get("status", {}).get("podIP")
    is_running = "running" in status.get("state", {}) and address is not None
    return Replica(
        id=replica_id(metadata["name"], restarts),
        group=GroupKey(metadata["labels"][EXECUTOR_LABEL]),
        state=state,
        message=cut_line(message),
        endpoint=pod_endpoint(address, INVOCATION_PORT) if is_running else None,
        metrics=pod_endpoint(address, METRICS_PORT) if is_running else None,
        failures=_failures(pod, status),
        cannot_start=state is ReplicaState.FAILED and _exit_code(status) == CANNOT_START,
        reason=reason,
        restart_delay=_restart_delay(status) if state is ReplicaState.FAILED else 0,
    )


def observe_exit(pod: JsonObject) -> ReplicaExit | None:
    """Returns the last exit of the pod's container, or of the pod, unless the pod was stopped on purpose."""
    if is_terminating(pod):
        return None
    metadata, status = pod["metadata"], container_status(pod)
    restarts, current = int(status.get("restartCount", 0)), status.get("state", {})
    ended = current.get("terminated")
    if ended is None and (ended := status.get("lastState", {}).get("terminated")) is not None:
        restarts -= "running" in current
    if has_ended(pod):
        time, message = _end_time(pod, ended), _pod_message(pod) or (exit_message(ended) if ended else "")
    elif ended is not None:
        time, message = ended["finishedAt"], exit_message(ended)
    else:
        return None
    return ReplicaExit(
        replica=replica_id(metadata["name"], restarts),
        group=metadata["labels"][EXECUTOR_LABEL],
        time=_time(time),
        message=cut_line(message),
    )


def _end_time(pod: JsonObject, ended: JsonObject | None) -> str:
    """Returns when a pod has ended: with its container, or without one with the last change of its conditions."""
    changes = [condition.get("lastTransitionTime") or "" for condition in pod["status"].get("conditions") or []]
    return (ended or {}).get("finishedAt") or max(changes, default="") or pod["metadata"]["creationTimestamp"]


def _pod_message(pod: JsonObject) -> str:
    return ": ".join(filter(None, (pod["status"].get("reason"), pod["status"].get("message"))))


def _state(pod: JsonObject, status: JsonObject) -> tuple[ReplicaState, str, str]:
    """Returns the state, the message and the reason."""
    if is_terminating(pod):
        return ReplicaState.DRAINING, "finishing the invocations in flight", ""
    if has_ended(pod):
        return ReplicaState.FAILED, _pod_message(pod), ""
    if find_condition(pod, "Ready").get("status") == "True":
        return ReplicaState.READY, describe_start(pod, status), ""
    current = status.get("state", {})
    ended = current.get("terminated") or ("waiting" in current and status.get("lastState", {}).get("terminated"))
    if ended:
        return ReplicaState.FAILED, exit_message(ended), ReplicaReason.CRASH_LOOP
    if "running" in current:
        return ReplicaState.STARTING, "loading", ReplicaReason.LOADING_MODEL
    if "waiting" in current:
        return ReplicaState.STARTING, *(_init_container(pod) or _waiting(current["waiting"]))
    return ReplicaState.STARTING, *_pending(pod)


def _pending(pod: JsonObject) -> tuple[str, str]:
    if is_unschedulable(pod):
        message = str(find_condition(pod, "PodScheduled").get("message") or "no node can run it")
        is_volume = _VOLUME.search(message) is not None and _INSUFFICIENT not in message
        return message, ReplicaReason.VOLUME_UNAVAILABLE if is_volume else ReplicaReason.INSUFFICIENT_CAPACITY
    if is_scheduled(pod):
        return "waiting for its node", ReplicaReason.PULLING_IMAGE
    return "waiting for the scheduler", ReplicaReason.SCHEDULING


def _waiting(waiting: JsonObject) -> tuple[str, str]:
    """Returns the message and the reason of a container that waits."""
    kubelet_reason = waiting.get("reason", "")
    message = _WAITING.get(kubelet_reason) or ": ".join(filter(None, (kubelet_reason, waiting.get("message"))))
    return message, _WAITING_REASONS.get(kubelet_reason, ReplicaReason.CREATE_CONTAINER_ERROR)


def _init_container(pod: JsonObject) -> tuple[str, str] | None:
    """Returns the message and the reason of the first init container for which the executor waits, or None."""
    sidecars = {
        each["name"] for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"
    }
    for status in pod["status"].get("initContainerStatuses") or []:
        name, state = status["name"], status.get("state", {})
        if name in sidecars and status.get("started"):
            continue  # It runs as long as the executor.
        ended = state.get("terminated") or status.get("lastState", {}).get("terminated")
        if ended and ended.get("exitCode") == 0:
            continue
        is_download = name == DOWNLOAD_CONTAINER
        if ended and "running" not in state:
            failed = ReplicaReason.DOWNLOAD_FAILED if is_download else ReplicaReason.CREATE_CONTAINER_ERROR
            return f"{name} {exit_message(ended)}", failed
        if "waiting" in state:
            message, reason = _waiting(state["waiting"])
            return f"{name}: {message}", reason
        return f"{name}: running", ReplicaReason.DOWNLOADING_MODEL if is_download else ReplicaReason.PULLING_IMAGE
    return None


def exit_message(terminated: JsonObject) -> str:
    """Describes the end of a container, with the error that its log or its termination message contains."""
    code, reason = int(terminated.get("exitCode", 0)), terminated.get("reason")
    error = find_error(str(terminated.get("message") or "").splitlines())
    if reason == "OOMKilled":
        return f"killed because it exceeded its memory limit; {_last_line(error)}"
    if reason not in (None, "Error", "Completed"):
        return f"{reason} (status {code}): {error or _last_line(error)}"
    if code > _KILLED:
        return f"killed by signal {code - _KILLED} ({_signal_name(code - _KILLED)}); {_last_line(error)}"
    if code == CANNOT_START and error:
        return error
    return f"exited with status {code}: {error or _last_line(error)}"


def _signal_name(number: int) -> str:
    try:
        return signal.strsignal(number) or "unknown"
    except ValueError:
        return "unknown"


def _last_line(error: str) -> str:
    return f"its last log line: {error}" if error else "its log is empty"


def _restart_delay(status: JsonObject) -> float:
    """Returns the kubelet's delay before the next run of a container that has exited."""
    waiting = status.get("state", {}).get("waiting", {})
    match = _BACK_OFF.search(waiting.get("message") or "")
    return 60.0 * int(match[1] or 0) + int(match[2] or 0) if match else 0.0


def _exit_code(status: JsonObject) -> int | None:
    """Returns the exit code of the container's last run."""
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
    return None if ended is None else ended.get("exitCode")


def _failures(pod: JsonObject, status: JsonObject) -> int:
    """Returns the number of consecutive runs of the container that exited before they were ready.

    It follows from the status alone, so that a new controller counts the same. After the pod has been ready once, only
    the last run counts: earlier runs leave no trace.
    """
    state, last = status.get("state", {}), status.get("lastState", {})
    ended = state.get("terminated") or last.get("terminated")
    if ended is None or status.get("ready"):
        return 0
    exits = int(status.get("restartCount", 0)) + ("running" not in state)
    ready = find_condition(pod, "Ready").get("lastTransitionTime")
    first, began = pod["status"].get("startTime"), ended.get("startedAt")
    if ready is None or first is None or (_time(ready) - _time(first)).total_seconds() <= FIRST_SYNC_SECONDS:
        return exits
    return 0 if began is not None and _time(ready) > _time(began) else 1


def _time(value: Any) -> datetime:
    return datetime.fromisoformat(value)

"""Reads the status of pods."""

from __future__ import annotations

from cornserve.kubernetes.resources import JsonObject


def find_condition(object: JsonObject, type: str) -> JsonObject:
    """Returns the condition of this type of a pod or another object, or an empty one."""
    conditions: list[JsonObject] = (object.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == type), {})


def pod_endpoint(address: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def has_ended(pod: JsonObject) -> bool:
    """Returns whether the pod has ended for good, such as an evicted one. Kubernetes replaces and keeps it."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def is_pod_ready(pod: JsonObject) -> bool:
    """Returns whether the pod is ready and does not end."""
    return find_condition(pod, "Ready").get("status") == "True" and not pod["metadata"].get("deletionTimestamp")


def pod_problem(pod: JsonObject) -> str:
    """Returns why the pod is not ready: that it cannot be scheduled, or the state of its first waiting container."""
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _text(scheduled, "is not scheduled")
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = container.get("state") or {}
        ended = (container.get("lastState") or {}).get("terminated")
        if (waiting := state.get("waiting")) and ended:
            return f"{waiting.get('reason')}: its last run ended with status {ended.get('exitCode')}"
        if waiting:
            return _text(waiting, "is waiting")
        if (terminated := state.get("terminated")) and terminated.get("exitCode"):
            return _text(terminated, "has ended")
    return _text(status, str(status.get("phase", "has no status")).lower())


def _text(state: JsonObject, default: str) -> str:
    return ": ".join(part for part in (state.get("reason"), state.get("message")) if part) or default

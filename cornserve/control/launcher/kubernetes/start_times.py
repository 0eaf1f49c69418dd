"""The seconds that the steps of a pod's start have taken."""

from __future__ import annotations

from datetime import datetime

from cornserve.control.launcher.kubernetes.names import DOWNLOAD_CONTAINER
from cornserve.kubernetes.pods import find_condition
from cornserve.kubernetes.resources import JsonObject


def describe_start(pod: JsonObject, status: JsonObject) -> str:
    """Returns `loaded in 45 s (image and volumes 4 s, download 30 s, load 11 s)` for a pod that is ready.

    Args:
        status: the status of the executor's container. A restarted container neither pulls nor downloads.
    """
    started = status.get("state", {}).get("running", {}).get("startedAt")
    steps = {"load": _seconds(started, find_condition(pod, "Ready").get("lastTransitionTime"))}
    if not status.get("restartCount"):
        download = _download(pod)
        first = download.get("startedAt", started)
        steps = {
            "image and volumes": _seconds(find_condition(pod, "PodScheduled").get("lastTransitionTime"), first),
            "download": _seconds(download.get("startedAt"), download.get("finishedAt")),
            **steps,
        }
    known = {step: seconds for step, seconds in steps.items() if seconds is not None}
    listed = ", ".join(f"{step} {seconds} s" for step, seconds in known.items())
    return f"loaded in {sum(known.values())} s ({listed})" if "load" in known else ""


def _download(pod: JsonObject) -> JsonObject:
    """Returns the state of the init container that has downloaded the model."""
    statuses: list[JsonObject] = pod["status"].get("initContainerStatuses") or []
    ended = (each["state"].get("terminated", {}) for each in statuses if each["name"] == DOWNLOAD_CONTAINER)
    return next(ended, {})


def _seconds(begin: str | None, end: str | None) -> int | None:
    if begin is None or end is None:
        return None
    return max(0, round((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()))

"""The events of an app on Kubernetes: the Events of its objects in the namespace."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from cornserve.app.event import AppEvent
from cornserve.control.store.base import AppRecord, StoreUnavailableError
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError
from cornserve.kubernetes.resources import EVENTS, JsonObject

GROUP_KINDS = ("Deployment", "ReplicaSet", "Pod", "PodDisruptionBudget")
"""The kinds of objects whose names are the key of an executor group, or begin with it."""


class KubernetesEvents:
    """Reads the Events of apps. Kubernetes keeps them for an hour."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def __call__(self, record: AppRecord) -> list[AppEvent]:
        """Returns the Events of the app, of its executors' Deployments and pods, oldest first.

        Raises `StoreUnavailableError`.
        """
        keys = [group.key for group in record.status.groups]
        try:
            listing = await self._client.list(EVENTS)
        except KubeApiError as error:
            raise StoreUnavailableError(f"the Events of {record.name!r} cannot be read: {error}: retry") from error
        found = [event for event in listing.items if _belongs(event["involvedObject"], record.uid, keys)]
        return [_app_event(event) for event in sorted(found, key=_order)]


def _belongs(involved: JsonObject, uid: str, keys: Iterable[str]) -> bool:
    if involved.get("uid") == uid:
        return True
    name = str(involved.get("name"))
    return involved.get("kind") in GROUP_KINDS and any(name == key or name.startswith(f"{key}-") for key in keys)


def _order(event: JsonObject) -> tuple[datetime, int]:
    """Returns the time in full seconds, which most Events have, and the order in which they were written."""
    return _time(event).replace(microsecond=0), int(event["metadata"]["resourceVersion"])


def _time(event: JsonObject) -> datetime:
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return datetime.fromisoformat(time or event["metadata"]["creationTimestamp"])


def _app_event(event: JsonObject) -> AppEvent:
    series, involved = event.get("series") or {}, event["involvedObject"]
    return AppEvent(
        time=_time(event),
        type="Warning" if event.get("type") == "Warning" else "Normal",
        reason=event.get("reason") or "",
        object=f"{involved.get('kind')}/{involved.get('name')}",
        message=(event.get("message") or "").strip(),
        count=series.get("count") or event.get("count") or 1,
    )

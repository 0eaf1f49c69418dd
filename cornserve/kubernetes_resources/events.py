"""Events about apps, which `kubectl describe` and `kubectl events` list."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeAlreadyExistsError, KubeApiError, KubeNotFoundError
from cornserve.kubernetes.resources import APPS, EVENTS, JsonObject

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

BURST = 25
"""Number of Events about one app that are written without a pause."""
REFILL_SECONDS = 60.0
"""Time until another Event about an app may be written after a burst."""
MAX_EVENT_CHARACTERS = 1024
MAX_APPS = 4096


@dataclass(slots=True)
class EventBudget:
    """The Events that may be written about one app."""

    left: float
    updated: float


class EventRecorder:
    """Writes Events. Equal Events are one object with a count. Never raises: Events are not essential.

    Args:
        component: the name of the program that reports the Events.
        clock: returns monotonic seconds.
    """

    def __init__(self, client: KubeClient, component: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._counts: OrderedDict[str, int] = OrderedDict()
        """The counts of the Events that this process has written, by name."""
        self._budgets: OrderedDict[str, EventBudget] = OrderedDict()

    async def record(self, name: str, uid: str, type: EventType, reason: str, message: str) -> None:
        """Writes an Event about the app with this name and uid. Drops it if the app has too many."""
        if not self._take(uid):
            return
        message = message[:MAX_EVENT_CHARACTERS]
        identity = sha256(f"{uid} {type} {reason} {message}".encode(errors="replace")).hexdigest()[:16]
        event_name = f"{name}.{identity}"
        try:
            await self._write(event_name, self._event(event_name, name, uid, type, reason, message))
        except KubeApiError as error:
            log.warning("cannot write the event %s about app %s: %s", reason, name, error)

    async def _write(self, event_name: str, event: JsonObject) -> None:
        try:
            if event_name not in self._counts:
                await self._client.create(EVENTS, event)
                self._remember(event_name, 1)
                return
        except KubeAlreadyExistsError:
            present = await self._client.get(EVENTS, event_name)
            self._remember(event_name, int(present.get("count") or 1))
        count = self._counts[event_name] + 1
        try:
            patch = {"count": count, "lastTimestamp": event["lastTimestamp"]}
            await self._client.merge_patch(EVENTS, event_name, patch)
            self._remember(event_name, count)
        except KubeNotFoundError:  # Kubernetes deletes Events after an hour.
            await self._client.create(EVENTS, event)
            self._remember(event_name, 1)

    def _remember(self, event_name: str, count: int) -> None:
        self._counts[event_name] = count
        self._counts.move_to_end(event_name)
        if len(self._counts) > MAX_APPS:
            self._counts.popitem(last=False)

    def _take(self, uid: str) -> bool:
        now = self._clock()
        budget = self._budgets.setdefault(uid, EventBudget(BURST, now))
        self._budgets.move_to_end(uid)
        if len(self._budgets) > MAX_APPS:
            self._budgets.popitem(last=False)
        budget.left = min(BURST, budget.left + (now - budget.updated) / REFILL_SECONDS)
        budget.updated = now
        if budget.left < 1:
            return False
        budget.left -= 1
        return True

    def _event(self, event_name: str, name: str, uid: str, type: EventType, reason: str, message: str) -> JsonObject:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = self._client.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event_name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": APPS.api_version,
                "kind": APPS.kind,
                "name": name,
                "namespace": namespace,
                "uid": uid,
            },
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

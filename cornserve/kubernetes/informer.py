"""A copy of the objects of one type that follows the API server."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Self

from cornserve.backoff import backoff_seconds
from cornserve.concurrency import Broadcast
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeGoneError
from cornserve.kubernetes.resources import JsonObject, ResourceType
from cornserve.kubernetes.watch_events import WATCH_SECONDS, WatchEvent
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
"""Pauses between attempts while the API server is away, before jitter."""

SHORT_WATCH_SECONDS = 1.0
"""A watch that ends within this time without an event counts as a failure."""


class Informer:
    """Lists the objects once, and then watches them.

    While the API server is away, the objects stay as they were read last. The watch then continues from the last
    version, which bookmarks keep recent. Objects are listed again only if the API server does not keep this version.

    Args:
        watch_seconds: the time after which the API server ends a watch, which then continues with another request.
    """

    def __init__(
        self,
        client: KubeClient,
        type: ResourceType,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._client = client
        self._type = type
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._watch_seconds = watch_seconds
        self._objects: dict[str, JsonObject] = {}
        self._version: str | None = None
        """The version of the last event or list. None: the objects must be listed."""
        self._failures = 0
        self._changes = Broadcast()
        self._tracked_changes: list[set[str]] = []
        self._errors = ErrorLog(log, f"cannot watch {type.qualified_name}, retrying: %s")
        self.synced = asyncio.Event()
        """Set after the first list."""
        self.error = ""
        """Why the objects are possibly outdated; empty while the watch works."""

    @property
    def objects(self) -> Mapping[str, JsonObject]:
        """The objects by name, without `managedFields`. They must not be modified."""
        return MappingProxyType(self._objects)

    def has_seen(self, version: str) -> bool:
        """Whether the objects contain the changes up to this resource version."""
        return self._version is not None and int(self._version) >= int(version)

    def next_change(self) -> asyncio.Event:
        """Returns an event that the next change of the objects or of `error` sets.

        A waiter that must not miss a change calls this before it reads the objects.
        """
        return self._changes.next_change()

    def track_changes(self) -> set[str]:
        """Returns a set to which the names of objects are added when they change. The caller removes them.

        At first, it contains the names of all objects.
        """
        changed = set(self._objects)
        self._tracked_changes.append(changed)
        return changed

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Follows the API server during the block, which starts after the first list."""
        following = asyncio.create_task(self.run())
        try:
            await self.synced.wait()
            yield self
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def run(self) -> None:
        """Follows the API server until cancelled."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
            except KubeGoneError:
                log.info("the changes of %s are not kept any more; listing again", self._type.qualified_name)
                self._version = None
                self._failures += 1
            except KubeApiError as error:
                self._failures += 1
                self._set_error(str(error))
            pause = backoff_seconds(self._failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
            # The jitter spreads the requests of many clients after an outage.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    async def _list(self) -> None:
        listing = await self._client.list(
            self._type, label_selector=self._label_selector, field_selector=self._field_selector
        )
        before = self._objects
        self._objects = {each["metadata"]["name"]: _trim(each) for each in listing.items}
        self._record_changes(*before, *self._objects)
        self._version = listing.resource_version
        self.synced.set()
        self._set_error("")
        self._changes.notify()

    async def _watch(self) -> None:
        """Follows one watch until it ends."""
        assert self._version is not None
        loop = asyncio.get_running_loop()
        started = loop.time()
        received = False
        async with self._client.watch(
            self._type,
            self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            # Watches that start together do not end together.
            seconds=self._watch_seconds * random.uniform(0.8, 1.2),
        ) as events:
            self._set_error("")
            async for event in events:
                received = True
                self._failures = 0
                self._apply(event)
        if received or loop.time() - started > SHORT_WATCH_SECONDS:
            self._failures = 0
        else:
            self._failures += 1

    def _apply(self, event: WatchEvent) -> None:
        self._version = event.resource_version
        if event.type == "BOOKMARK":
            return
        name = event.object["metadata"]["name"]
        if event.type == "DELETED":
            self._objects.pop(name, None)
        else:
            self._objects[name] = _trim(event.object)
        self._record_changes(name)
        self._changes.notify()

    def _record_changes(self, *names: str) -> None:
        for tracked in self._tracked_changes:
            tracked.update(names)

    def _set_error(self, error: str) -> None:
        if error:
            self._errors.report(error)
        else:
            self._errors.clear()
        if error != self.error:
            self.error = error
            self._changes.notify()


def _trim(object: JsonObject) -> JsonObject:
    """Removes the record of field managers, which is often larger than the rest of the object."""
    object["metadata"].pop("managedFields", None)
    return object

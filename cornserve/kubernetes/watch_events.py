"""The events of a watch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cornserve.kubernetes.errors import parse_object, status_error
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes.transport import KubeTransport

if TYPE_CHECKING:
    from aiohttp import ClientResponse

WATCH_SECONDS = 300.0
"""The time after which the API server ends a watch. The watcher starts another from the last version."""

SILENT_SECONDS = 90.0
"""A watch without any event for this time is broken: the API server sends a bookmark about once a minute."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    """`ADDED`, `MODIFIED`, `DELETED`, or `BOOKMARK`, whose object has nothing but a resource version."""
    object: JsonObject

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


async def read_events(response: ClientResponse, transport: KubeTransport) -> AsyncIterator[WatchEvent]:
    """Yields the events of the stream. Raises the error with which the API server ends it, and connection errors."""
    while True:
        with transport.connection_errors():
            line = await response.content.readline()
        if not line:
            return
        event = parse_object(transport.host, line)
        if event["type"] == "ERROR":
            raise status_error(event["object"])
        yield WatchEvent(event["type"], event["object"])

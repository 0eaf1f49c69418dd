"""Lists that are read in pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cornserve.kubernetes.errors import KubeGoneError
from cornserve.kubernetes.resources import JsonObject, ResourceType

PAGE_OBJECTS = 500
"""Number of objects per response of a list."""

Parameters = dict[str, str | None]
"""The parameters of a request. None: without this parameter."""

ReadPage = Callable[[Parameters], Awaitable[JsonObject]]


@dataclass(frozen=True, slots=True)
class ObjectList:
    items: list[JsonObject]
    resource_version: str
    """A watch from this version yields all later changes."""


async def read_pages(read: ReadPage, type: ResourceType, parameters: Parameters, *, restart: bool) -> ObjectList:
    """Reads all pages of a list.

    Args:
        restart: reads the newest objects in one page if the API server does not keep the version of the first page any
            more, because the pages took too long.
    """
    try:
        return await _read_pages(read, type, parameters | {"limit": str(PAGE_OBJECTS)})
    except KubeGoneError:
        if not restart:
            raise
        return await _read_pages(read, type, parameters)


async def _read_pages(read: ReadPage, type: ResourceType, parameters: Parameters) -> ObjectList:
    items: list[JsonObject] = []
    while True:
        page = await read(parameters)
        items += (_with_type(item, type) for item in page["items"])
        following = page["metadata"].get("continue")
        if not following:
            return ObjectList(items, page["metadata"]["resourceVersion"])
        # The continuation contains the version.
        parameters = parameters | {"continue": following, "resourceVersion": None, "resourceVersionMatch": None}


def _with_type(item: JsonObject, type: ResourceType) -> JsonObject:
    """Adds what the items of a list do not have, so that they equal single objects."""
    return {"apiVersion": type.api_version, "kind": type.kind, **item}

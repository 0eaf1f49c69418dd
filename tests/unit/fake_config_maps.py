"""ConfigMaps without an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from cornserve.concurrency import Broadcast


class FakeConfigMaps:
    def __init__(self) -> None:
        self._changes = Broadcast()
        self._objects: dict[str, Any] = {}

    @property
    def objects(self) -> Mapping[str, Any]:
        return self._objects

    def next_change(self) -> asyncio.Event:
        return self._changes.next_change()

    def put(self, name: str, **data: str) -> None:
        self._objects[name] = {"metadata": {"name": name}, "data": {f"{key}.py": text for key, text in data.items()}}
        self._changes.notify()

    def delete(self, name: str) -> None:
        del self._objects[name]
        self._changes.notify()

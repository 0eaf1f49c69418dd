"""The newest known objects of one type: as an informer sees them, or as they were written last."""

from __future__ import annotations

import asyncio

from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import JsonObject

UNSEEN_SECONDS = 30.0
"""After this time, `get` returns the informer's object even if the informer has not seen the own write: the API server
may have lost it."""


class NewestObjects:
    """Hides the delay between an own write and the informer."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._written: dict[str, tuple[float, JsonObject]] = {}
        """The objects as they were written last, with the time, until the informer has seen the write."""

    def record(self, written: JsonObject) -> None:
        """Records what the API server has returned for a write."""
        self._written[written["metadata"]["name"]] = (_now(), written)

    def get(self, name: str) -> JsonObject | None:
        """Returns the newest known object, or None if it does not exist."""
        if name in self._written:
            at, written = self._written[name]
            is_seen = self._informer.has_seen(written["metadata"]["resourceVersion"])
            if not is_seen and _now() - at <= UNSEEN_SECONDS:
                return written
            del self._written[name]
        return self._informer.objects.get(name)


def _now() -> float:
    return asyncio.get_running_loop().time()

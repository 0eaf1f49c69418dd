"""The interface through which a controller reports what happens to apps, beyond their status."""

from __future__ import annotations

from typing import Protocol

from cornserve.app.record import AppStatus
from cornserve.control.store.base import AppRecord, UnreadableRecord


class AppObserver(Protocol):
    """Receives changes. The methods must not raise errors."""

    async def on_status(self, app: AppRecord, before: AppStatus) -> None:
        """Is called after a status was written."""

    async def on_adaptation(self, app: AppRecord, reason: str, message: str) -> None:
        """Is called when an app adapts to its load, should adapt, or has another mix of requests than planned.

        Args:
            reason: `Adapted`, `AdaptationProposed` or `MixShifted`.
        """

    async def on_unreadable(self, app: UnreadableRecord) -> None:
        """Is called when the record of an app was found unreadable."""

"""The interface of an app whose size follows its load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cornserve.app.adaptation_status import AdaptationStatus
from cornserve.app.settings import AdaptationSettings, AutoscalingSettings
from cornserve.app.spec import SpecChanges
from cornserve.control.adaptation.arrival_reader import Arrivals
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import AppRecord


@dataclass(frozen=True, slots=True)
class SpecChange:
    """Fields of an app's spec with other values, and the reason for users."""

    fields: SpecChanges
    message: str


class AppAdaptation(Protocol):
    """Observes the load of an app, and decides when its spec changes."""

    @property
    def record(self) -> AppRecord: ...

    @property
    def settings(self) -> AdaptationSettings | AutoscalingSettings: ...

    @property
    def status(self) -> AdaptationStatus:
        """The published state."""

    def update(self, record: AppRecord, now: float) -> None:
        """Applies a newer record of the app, with the same settings."""

    def observe(self, arrivals: Arrivals, now: float) -> None:
        """Adds the arrivals since the last call, and updates the status."""

    def next_change(self, now: float, *, may_change: bool) -> SpecChange | None:
        """Returns the change of the spec that the load needs, or None.

        Args:
            may_change: whether earlier changes are complete. Otherwise, the spec stays as it is.
        """

    def news(self, before: AdaptationStatus) -> Iterator[tuple[str, str]]:
        """Yields the reason and the message of each event since an earlier status."""

    def publish(self, metrics: ControllerMetrics, now: float) -> None:
        """Sets the metrics of the app."""

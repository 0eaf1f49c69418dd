"""The last changes of apps, as this gateway has seen them in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from cornserve.app.overview import OverviewEvent
from cornserve.app.record import AppStatus, Phase, ReplicaState
from cornserve.concurrency import Broadcast
from cornserve.control.store.base import AppRecord

MAX_EVENTS: Final = 100


class AppChanges:
    """Keeps the last `MAX_EVENTS` events, and wakes those who wait for a change."""

    def __init__(self) -> None:
        self.broadcast = Broadcast()
        self._events = deque[OverviewEvent](maxlen=MAX_EVENTS)
        self._records: dict[str, AppRecord] = {}

    @property
    def events(self) -> list[OverviewEvent]:
        """The events, newest first."""
        return [*reversed(self._events)]

    def update(self, name: str, record: AppRecord | None, *, is_first: bool) -> None:
        """Compares a record with the last one of the app.

        Args:
            is_first: whether the store is being read for the first time, so that the app is not new.
        """
        before = self._records.pop(name, None)
        if record is not None:
            self._records[name] = record
        if record is before:
            return
        if record is None:
            self._events.append(_event(name, f"App/{name}", "Deleted", "the app was deleted"))
        elif before is None and is_first:
            self._events.extend(_exits(name, AppStatus(), record.status))
        else:
            self._events.extend(_changes(name, before, record))
        self.broadcast.notify()


def _changes(name: str, before: AppRecord | None, record: AppRecord) -> Iterator[OverviewEvent]:
    if before is None or before.generation != record.generation:
        yield _event(name, f"App/{name}", "Deployed", f"generation {record.generation}")
    old, new = AppStatus() if before is None else before.status, record.status
    if old.phase is not new.phase:
        is_failed = new.phase is Phase.FAILED
        yield _event(name, f"App/{name}", new.phase.capitalize(), new.message, is_warning=is_failed)
    yield from _exits(name, old, new)
    states = {replica.id: replica.state for group in old.groups for replica in group.replicas}
    for replica in (replica for group in new.groups for replica in group.replicas):
        if states.get(replica.id) is not replica.state:
            is_failed = replica.state is ReplicaState.FAILED
            state = replica.state.capitalize()
            yield _event(name, f"Replica/{replica.id}", state, replica.message, is_warning=is_failed)


def _exits(name: str, old: AppStatus, new: AppStatus) -> Iterator[OverviewEvent]:
    for exit in new.exits:
        if exit not in old.exits:
            event = _event(name, f"Replica/{exit.replica}", "ExecutorExited", exit.message, is_warning=True)
            yield event.model_copy(update={"time": exit.time})


def _event(app: str, object: str, reason: str, message: str, *, is_warning: bool = False) -> OverviewEvent:
    kind: Literal["Normal", "Warning"] = "Warning" if is_warning else "Normal"
    return OverviewEvent(time=datetime.now(UTC), app=app, type=kind, reason=reason, object=object, message=message)

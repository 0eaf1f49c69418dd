"""The events of an app on one machine: the last exits of its executors, and its current state."""

from __future__ import annotations

from typing import Literal

from cornserve.app.event import AppEvent
from cornserve.app.record import Phase, ReplicaState
from cornserve.control.store.base import AppRecord

EventType = Literal["Normal", "Warning"]


async def state_events(record: AppRecord) -> list[AppEvent]:
    """Returns an event for each exit of a replica, and without a time one for the app and one for each replica."""
    replicas = [replica for group in record.status.groups for replica in group.replicas]
    phase = record.status.phase if record.status.generation >= record.generation else Phase.PENDING
    return [
        *(
            AppEvent(
                time=exit.time,
                type="Warning",
                reason="ExecutorExited",
                object=f"Replica/{exit.replica}",
                message=exit.message,
            )
            for exit in record.status.exits
        ),
        _event(f"App/{record.name}", phase.value, record.status.message, is_warning=phase is Phase.FAILED),
        *(
            _event(
                f"Replica/{replica.id}",
                replica.state.value,
                replica.message,
                is_warning=replica.state is ReplicaState.FAILED,
            )
            for replica in replicas
        ),
    ]


def _event(object: str, reason: str, message: str, *, is_warning: bool) -> AppEvent:
    type_: EventType = "Warning" if is_warning else "Normal"
    return AppEvent(type=type_, reason=reason.capitalize(), object=object, message=message)

"""The events of an app on one machine, where nothing records them: its current state."""

from __future__ import annotations

from typing import Literal

from cornserve.app.event import AppEvent
from cornserve.app.record import Phase, ReplicaState
from cornserve.control.store.base import AppRecord

EventType = Literal["Normal", "Warning"]


async def state_events(record: AppRecord) -> list[AppEvent]:
    """Returns an event for the app and for each replica, without a time."""
    replicas = [replica for group in record.status.groups for replica in group.replicas]
    phase = record.status.phase if record.status.generation >= record.generation else Phase.PENDING
    return [
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

"""Events about apps, and conditions of apps whose specs cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from cornserve.app.record import AppStatus, FailureReason, Phase, ReplicaState, ReplicaStatus
from cornserve.control.store.base import AppRecord, UnreadableRecord
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError
from cornserve.kubernetes.resources import APPS
from cornserve.kubernetes_resources.conditions import Finding, findings
from cornserve.kubernetes_resources.events import EventRecorder, EventType
from cornserve.kubernetes_resources.status_mapping import encode_status

log = logging.getLogger(__name__)

_WARNINGS = (("Accepted", "False"), ("Degraded", "True"))
"""Conditions that are reported as warnings."""


class ClusterAppObserver:
    """Writes an Event for each change of an app's conditions, each start and each exit of a replica."""

    def __init__(self, client: KubeClient, component: str) -> None:
        self._client = client
        self._events = EventRecorder(client, component)

    async def on_status(self, app: AppRecord, before: AppStatus) -> None:
        known = {finding.type: finding for finding in findings(before)}
        for finding in findings(app.status):
            if _is_reported(finding, known[finding.type], is_new=before.generation != app.status.generation):
                kind: EventType = "Warning" if (finding.type, finding.status) in _WARNINGS else "Normal"
                message = finding.message or f"generation {app.status.generation}"
                await self._events.record(app.name, app.uid, kind, finding.reason, message)
        for exit in app.status.exits:
            if exit not in before.exits:
                message = f"{exit.replica} {exit.message}"
                await self._events.record(app.name, app.uid, "Warning", "ExecutorExited", message)
        for replica in _loaded(app.status, before):
            await self._events.record(app.name, app.uid, "Normal", "Loaded", f"{replica.id} {replica.message}")

    async def on_adaptation(self, app: AppRecord, reason: str, message: str) -> None:
        kind: EventType = "Warning" if reason == "MixShifted" else "Normal"
        await self._events.record(app.name, app.uid, kind, reason, message)

    async def on_unreadable(self, app: UnreadableRecord) -> None:
        """Writes the reason to the conditions: a store cannot write the status of a record that it cannot read."""
        try:
            current = await self._client.get(APPS, app.name)
            status = AppStatus(
                phase=Phase.FAILED,
                generation=current["metadata"]["generation"],
                reason=FailureReason.INVALID_SPEC,
                message=app.reason,
            )
            encoded = encode_status(status, current.get("status"))
            if encoded != current.get("status"):
                await self._client.replace(APPS, {**current, "status": encoded}, subresource="status")
                await self._events.record(
                    app.name, current["metadata"]["uid"], "Warning", FailureReason.INVALID_SPEC, app.reason
                )
        except KubeApiError as error:
            log.warning("cannot write the status of app %s: %s", app.name, error)


def _loaded(status: AppStatus, before: AppStatus) -> Iterator[ReplicaStatus]:
    """Yields the replicas that have become ready, if the seconds of their start are known."""
    known = {replica.id for group in before.groups for replica in group.replicas if replica.state is ReplicaState.READY}
    for group in status.groups:
        for replica in group.replicas:
            if replica.state is ReplicaState.READY and replica.message and replica.id not in known:
                yield replica


def _is_reported(finding: Finding, before: Finding, *, is_new: bool) -> bool:
    """Returns whether a condition is an Event: steps of a roll-out, warnings, and the end of their causes."""
    is_changed = (finding.status, finding.reason) != (before.status, before.reason)
    if finding.type == "Progressing":
        return is_changed or is_new
    return is_changed and (finding.type, finding.status) in _WARNINGS

"""Events about apps, conditions of apps whose specs cannot be used, and the owner of temporary apps."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from cornserve.app.record import AppStatus, FailureReason, Phase, ReplicaState, ReplicaStatus
from cornserve.control.installation_owner import installation_owners
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.control.profiling.job import run_of_temporary_app
from cornserve.control.store.base import AppRecord, UnreadableRecord
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError
from cornserve.kubernetes.resources import APPS
from cornserve.kubernetes_resources.conditions import Finding, findings
from cornserve.kubernetes_resources.events import EventRecorder, EventType
from cornserve.kubernetes_resources.status_mapping import encode_status

log = logging.getLogger(__name__)


class ClusterAppObserver:
    """Writes an Event for each change of an app's conditions, each start and each exit of a replica.

    Temporary apps of measurements get the installation as their owner: Kubernetes deletes them with it.
    """

    def __init__(self, client: KubeClient, component: str, settings: ClusterSettings) -> None:
        self._client = client
        self._events = EventRecorder(client, component)
        self._settings = settings
        self._owned: set[str] = set()
        """The uids of the temporary apps with an owner."""

    async def on_status(self, app: AppRecord, before: AppStatus) -> None:
        if app.uid not in self._owned and run_of_temporary_app(app.name) is not None:
            await self._set_owner(app)
        for finding in _reported(app.status, before):
            kind: EventType = "Warning" if _is_warning(finding) else "Normal"
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

    async def _set_owner(self, app: AppRecord) -> None:
        try:
            owners = await installation_owners(self._client, self._settings)
            await self._client.merge_patch(APPS, app.name, {"metadata": {"uid": app.uid, "ownerReferences": owners}})
            self._owned.add(app.uid)
        except KubeApiError as error:
            log.warning("cannot set the owner of the temporary app %s: %s", app.name, error)


def _loaded(status: AppStatus, before: AppStatus) -> Iterator[ReplicaStatus]:
    """Yields the replicas that have become ready, if the seconds of their start are known."""
    known = {replica.id for group in before.groups for replica in group.replicas if replica.state is ReplicaState.READY}
    for group in status.groups:
        for replica in group.replicas:
            if replica.state is ReplicaState.READY and replica.message and replica.id not in known:
                yield replica


def _reported(status: AppStatus, before: AppStatus) -> Iterator[Finding]:
    """Yields the conditions that are Events: steps of a roll-out, and warnings.

    A reason that `Degraded` shares with another condition is one Event.
    """
    known = {finding.type: finding for finding in findings(before)}
    current = {finding.type: finding for finding in findings(status)}
    degraded, is_new = current["Degraded"], before.generation != status.generation
    for type, finding in current.items():
        is_repeated = finding is not degraded and _is_warning(degraded) and finding.reason == degraded.reason
        is_changed = (finding.status, finding.reason) != (known[type].status, known[type].reason)
        if not is_repeated and (type == "Progressing" or _is_warning(finding)) and (is_changed or is_new):
            yield finding


def _is_warning(finding: Finding) -> bool:
    return (finding.type, finding.status) in (("Accepted", "False"), ("Degraded", "True"))

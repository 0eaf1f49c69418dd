"""How an app starts, in words: what each new view of it tells."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.app.record import AppView, ReplicaState, ReplicaStatus


class Progress:
    """Remembers the last view, and tells what is new in the next."""

    def __init__(self) -> None:
        self.replicas: dict[str, ReplicaStatus] = {}
        self._message = ""

    def take(self, view: AppView) -> Iterator[str]:
        """Lines for people: what happened between the last view and this one."""
        replicas = {replica.id: replica for group in view.status.groups for replica in group.replicas}
        if not replicas and not view.settled and view.status.message not in ("", self._message):
            yield view.status.message
        self._message = view.status.message
        before, self.replicas = self.replicas, replicas
        for replica in replicas.values():
            last = before.get(replica.id)
            if last is None or (last.state, last.message) != (replica.state, replica.message):
                yield from _what_happened(replica)


def _what_happened(replica: ReplicaStatus) -> Iterator[str]:
    match replica.state:
        case ReplicaState.STARTING if replica.message:
            yield f"{replica.id}: {replica.message}"
        case ReplicaState.READY:
            yield f"{replica.id}: ready"
        case ReplicaState.DRAINING:
            yield f"{replica.id}: finishes its requests and ends"
        case ReplicaState.FAILED:
            yield f"{replica.id}: failed: {replica.message}"

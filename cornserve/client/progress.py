"""Progress messages while an app starts."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.app.record import AppView, ReplicaState, ReplicaStatus


class Progress:
    """Compares each view of an app with the previous view."""

    def __init__(self) -> None:
        self.replicas: dict[str, ReplicaStatus] = {}
        self._message = ""

    def update(self, view: AppView) -> Iterator[str]:
        """Yields a line of text for each change since the last view."""
        replicas = {replica.id: replica for group in view.status.groups for replica in group.replicas}
        if not replicas and _is_starting(view) and view.status.message not in ("", self._message):
            yield view.status.message
        self._message = view.status.message
        before, self.replicas = self.replicas, replicas
        for replica in replicas.values():
            last = before.get(replica.id)
            if last is None or (last.state, last.message) != (replica.state, replica.message):
                yield from _changes(replica)


def _is_starting(view: AppView) -> bool:
    """Returns whether the status describes the newest generation, which does not serve yet."""
    return view.status.generation >= view.generation and not view.settled


def _changes(replica: ReplicaStatus) -> Iterator[str]:
    match replica.state:
        case ReplicaState.STARTING if replica.message:
            yield f"{replica.id}: {replica.message}"
        case ReplicaState.READY:
            yield f"{replica.id}: ready{f', {replica.message}' if replica.message else ''}"
        case ReplicaState.DRAINING:
            yield f"{replica.id}: draining: finishes its requests and stops"
        case ReplicaState.FAILED:
            yield f"{replica.id}: failed: {replica.message}"

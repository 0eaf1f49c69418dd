"""A routing policy of a third party."""

from __future__ import annotations

from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.replica_routing import RoutedInvocation


class MostLoadedRouting:
    """The opposite of `least-loaded`."""

    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        return max(board.available, key=lambda each: (each.invocations(now), each.id), default=None)

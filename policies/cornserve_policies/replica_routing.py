"""Routing policies: the replica that runs an invocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.input_size import InputSize
from cornserve_policies.replayable_random import ReplayableRandom


@dataclass(frozen=True, slots=True)
class RoutedInvocation:
    """An invocation that needs a replica."""

    request_id: str
    index: int
    """The index of the invocation within its request."""
    size: InputSize

    @property
    def random(self) -> ReplayableRandom:
        """Random numbers that retries and other gateways repeat."""
        return ReplayableRandom(f"{self.request_id}/{self.index}")


class RoutingPolicy(Protocol):
    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        """Returns the replica that runs the invocation, or None if none is available.

        It must not change its arguments. The same history must lead to the same choice.

        Args:
            now: the time in seconds, by the clock of the board's reports.
        """


class StaticRouting:
    """Draws the replica from the request's id, with equal shares [C §5.3].

    The loads do not matter. If the drawn replica is not available, the next one by id takes its invocations.
    """

    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        replicas = board.replicas
        first = int(invocation.random.uniform() * len(replicas))
        ring = (replicas[(first + step) % len(replicas)] for step in range(len(replicas)))
        return next((replica for replica in ring if replica.id not in board.unavailable), None)


class LeastLoadedRouting:
    """Chooses the replica with the fewest invocations, and among equals the least recently used."""

    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        return _least_loaded(board.available, now)


class PowerOfTwoRouting:
    """Draws two replicas from the request's id, and chooses the one with fewer invocations.

    Gateways that know equally little about the loads then do not all choose the same replica.
    """

    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        available = board.available
        if len(available) > 2:
            random = invocation.random
            first, second = int(random.uniform() * len(available)), int(random.uniform() * (len(available) - 1))
            available = [available[first], available[second + (second >= first)]]
        return _least_loaded(available, now)


class LeastTokensRouting:
    """Chooses the replica with the fewest pending input tokens, and among equals the least loaded [M §4.3].

    Tokens are pending until their invocation has output.
    """

    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        return min(
            board.available,
            key=lambda replica: (replica.pending_tokens(now), replica.invocations(now), replica.last_start),
            default=None,
        )


def _least_loaded(replicas: Sequence[ReplicaLoad], now: float) -> ReplicaLoad | None:
    if len(replicas) == 1:
        return replicas[0]
    return min(replicas, key=lambda replica: (replica.invocations(now), replica.last_start), default=None)

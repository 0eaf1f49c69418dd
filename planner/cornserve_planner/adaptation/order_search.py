"""Searches the order of starts and stops of an adaptation: exactly within a limit of states, or greedily."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, pairwise

from cornserve_planner.adaptation.mixture import Adaptation
from cornserve_planner.errors import InfeasibleError

STATES = 20_000
"""States of the exact search. They take about a second."""
ROUNDING = 1e-9

Counts = tuple[int, ...]
Cost = tuple[float, float, float]
"""Lost requests, seconds, and the seconds of cells that were stopped early."""


@dataclass(frozen=True, slots=True)
class StartableCell:
    """A kind of cell: its GPUs by type, its requests per second, and the seconds that it takes to start."""

    gpus: Mapping[str, int]
    rate: float
    startup: float


@dataclass(frozen=True, slots=True, order=True)
class AdaptationState:
    """Counts of the starts and stops that are left, and the starting cells: seconds until ready, kind, and count."""

    starts: Counts
    stops: Counts
    pending: tuple[tuple[float, int, int], ...]


Timeline = list[tuple[float, AdaptationState]]
"""The states after the actions at each time."""


class AdaptationSearch:
    def __init__(
        self,
        cells: Mapping[int, StartableCell],
        running: Mapping[int, int],
        change: Adaptation,
        required: float,
        free: Mapping[str, int],
    ) -> None:
        self.sizes = sorted(change.starts.keys() | change.stops.keys())
        self.cells = [cells[size] for size in self.sizes]
        self.first = AdaptationState(
            tuple(change.starts.get(size, 0) for size in self.sizes),
            tuple(change.stops.get(size, 0) for size in self.sizes),
            (),
        )
        self.free = free
        self.required = required
        self.rate = math.fsum(cells[size].rate * number for size, number in running.items())
        self.kinds = range(len(self.sizes))

    @property
    def least_seconds(self) -> float:
        return max((self.cells[kind].startup for kind in self.kinds if self.first.starts[kind]), default=0.0)

    def check(self) -> None:
        everything = AdaptationState((0,) * len(self.sizes), (0,) * len(self.sizes), ())
        for name, left in self._free_gpus(everything).items():
            if left < 0:
                available = self.free.get(name, 0)
                raise InfeasibleError(
                    f"{available} free {name} GPUs", f"the adapted plan needs {available - left} more than are running"
                )

    def exact(self) -> Timeline | None:
        """Returns the best order (Dijkstra's algorithm), or None if the limit of states is reached."""
        ties = count()
        queue: list[tuple[Cost, int, AdaptationState]] = [((0.0, 0.0, 0.0), next(ties), self.first)]
        parents: dict[AdaptationState, tuple[AdaptationState, float] | None] = {self.first: None}
        costs: dict[AdaptationState, Cost] = {self.first: (0.0, 0.0, 0.0)}
        done: set[AdaptationState] = set()
        while queue and len(done) < STATES:
            cost, _, state = heappop(queue)
            if state in done:
                continue
            done.add(state)
            if not any(state.starts) and not state.pending:
                return self._timeline(parents, state)
            for found, seconds in self._next(state):
                total = tuple(a + b for a, b in zip(cost, self._cost(state, seconds), strict=True))
                if found not in costs or total < costs[found]:
                    costs[found] = (total[0], total[1], total[2])
                    parents[found] = (state, seconds)
                    heappush(queue, (costs[found], next(ties), found))
        return None

    def greedy(self) -> Timeline:
        """Starts what fits, stops what is not needed, and stops the cells with the lowest rate if nothing starts."""
        state, seconds = self.first, 0.0
        timeline: Timeline = []
        while any(state.starts) or state.pending:
            state = self._start_all(state)
            while any(state.starts) and (stop := self._best_stop(state)) is not None:
                state = self._start_all(stop)
            timeline.append((seconds, state))
            state, waited = self._wait(state)
            seconds += waited
        return [*timeline, (seconds, state)]

    def cost(self, timeline: Timeline) -> Cost:
        spans = pairwise(timeline)
        costs = [self._cost(state, after - at) for (at, state), (after, _) in spans]
        lost, seconds, stopped = (math.fsum(column) for column in zip(*costs, (0.0, 0.0, 0.0), strict=True))
        return lost, seconds, stopped

    def _timeline(
        self, parents: Mapping[AdaptationState, tuple[AdaptationState, float] | None], state: AdaptationState
    ) -> Timeline:
        chain: list[tuple[AdaptationState, float]] = []
        found: AdaptationState = state
        while (parent := parents[found]) is not None:
            chain.append((found, parent[1]))
            found = parent[0]
        timeline, seconds = [(0.0, self.first)], 0.0
        for after, waited in reversed(chain):
            if waited:
                seconds += waited
                timeline.append((seconds, after))
            else:
                timeline[-1] = (seconds, after)
        return timeline

    def _next(self, state: AdaptationState) -> Iterator[tuple[AdaptationState, float]]:
        for kind in self.kinds:
            if (started := self._start(state, kind, most=1)) is not None:
                yield started, 0.0
            if any(state.starts) and state.stops[kind]:
                yield AdaptationState(state.starts, _less(state.stops, kind), state.pending), 0.0
        if state.pending:
            yield self._wait(state)

    def _start(self, state: AdaptationState, kind: int, most: int) -> AdaptationState | None:
        """Returns the state after starting at most `most` cells of a kind, limited by free GPUs; None if none fits."""
        left = self._free_gpus(state)
        fit = min(left.get(name, 0) // each for name, each in self.cells[kind].gpus.items())
        number = min(most, state.starts[kind], fit)
        if number <= 0:
            return None
        waiting = {(seconds, kind): count for seconds, kind, count in state.pending}
        ready = (self.cells[kind].startup, kind)
        waiting[ready] = waiting.get(ready, 0) + number
        pending = tuple(sorted((*key, count) for key, count in waiting.items()))
        return AdaptationState(_less(state.starts, kind, number), state.stops, pending)

    def _start_all(self, state: AdaptationState) -> AdaptationState:
        for kind in sorted(self.kinds, key=lambda kind: -self.cells[kind].rate):
            state = self._start(state, kind, most=state.starts[kind]) or state
        return state

    def _best_stop(self, state: AdaptationState) -> AdaptationState | None:
        """Returns the state after stopping the cell with the lowest rate, or None if it is better to wait."""
        kinds = sorted((kind for kind in self.kinds if state.stops[kind]), key=lambda kind: self.cells[kind].rate)
        for kind in kinds:
            enough = self.rate_of(state) - self.cells[kind].rate >= self.required * (1 - ROUNDING)
            if enough or not state.pending:
                return AdaptationState(state.starts, _less(state.stops, kind), state.pending)
        return None

    def _wait(self, state: AdaptationState) -> tuple[AdaptationState, float]:
        """Returns the state when the next cells are ready, and the seconds until then."""
        waited = state.pending[0][0]
        left = ((round(seconds - waited, 9), kind, number) for seconds, kind, number in state.pending)
        return AdaptationState(state.starts, state.stops, tuple(entry for entry in left if entry[0] > 0)), waited

    def _cost(self, state: AdaptationState, seconds: float) -> Cost:
        missing = self.required - self.rate_of(state)
        stopped = sum(self.first.stops) - sum(state.stops)
        return missing * seconds if missing > ROUNDING * self.required else 0.0, seconds, stopped * seconds

    def rate_of(self, state: AdaptationState) -> float:
        rate = self.rate
        for kind in self.kinds:
            starting = state.starts[kind] + sum(number for _, pending, number in state.pending if pending == kind)
            ready = self.first.starts[kind] - starting
            rate += self.cells[kind].rate * (ready + state.stops[kind] - self.first.stops[kind])
        return rate

    def _free_gpus(self, state: AdaptationState) -> dict[str, int]:
        free = dict(self.free)
        for kind in self.kinds:
            change = self.first.stops[kind] - state.stops[kind] - (self.first.starts[kind] - state.starts[kind])
            for name, number in self.cells[kind].gpus.items():
                free[name] = free.get(name, 0) + change * number
        return free


def _less(counts: Counts, kind: int, number: int = 1) -> Counts:
    return (*counts[:kind], counts[kind] - number, *counts[kind + 1 :])

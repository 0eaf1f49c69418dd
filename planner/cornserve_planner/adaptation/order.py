"""Orders the starts and stops of an adaptation, so that the running cells keep serving.

A cell that starts occupies its GPUs, and serves after its start-up time. A cell that stops frees its GPUs at once. The
order loses the fewest requests first, then takes the least time, then stops cells as late as possible. Starts and stops
happen at the beginning or when a cell becomes ready: other times are not better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from cornserve_planner.adaptation.mixture import Adaptation
from cornserve_planner.adaptation.order_search import (
    ROUNDING,
    AdaptationSearch,
    AdaptationState,
    StartableCell,
    Timeline,
)


@dataclass(frozen=True, slots=True)
class AdaptationStep:
    """Cells to stop and to start at the same time, by GPUs of a cell.

    Args:
        seconds: time since the beginning.
        rate: requests per second that the ready cells serve from then on.
    """

    seconds: float
    stops: Mapping[int, int]
    starts: Mapping[int, int]
    rate: float


@dataclass(frozen=True, slots=True)
class AdaptationOrder:
    """
    Args:
        required: requests per second to serve throughout.
        lost: requests that arrive at this rate beyond the capacity.
        proven: whether no order loses fewer requests, or the same number in less time.
    """

    steps: tuple[AdaptationStep, ...]
    required: float
    lost: float
    proven: bool

    @property
    def seconds(self) -> float:
        return self.steps[-1].seconds if self.steps else 0.0

    @property
    def shortfalls(self) -> list[tuple[float, float]]:
        """The requests per second that are missing, and for how many seconds."""
        spans = pairwise(self.steps)
        missing = [(self.required - step.rate, after.seconds - step.seconds) for step, after in spans]
        return [(rate, seconds) for rate, seconds in missing if rate > ROUNDING * self.required and seconds > 0]


def order_adaptation(
    cells: Mapping[int, StartableCell],
    running: Mapping[int, int],
    change: Adaptation,
    required: float,
    free: Mapping[str, int],
) -> AdaptationOrder:
    """
    Args:
        cells: kinds of cells, by GPUs of a cell.
        running: counts by GPUs of a cell.
        required: requests per second to serve throughout, at most the rates before and after the change.
        free: GPUs by type that are free at the beginning.

    Raises `InfeasibleError` if the cells to start need more GPUs than are free or freed.
    """
    search = AdaptationSearch(cells, running, change, required, free)
    search.check()
    greedy = search.greedy()
    if search.cost(greedy)[0] == 0 and greedy[-1][0] <= search.least_seconds:
        return _order(search, greedy, proven=True)
    exact = search.exact()
    return _order(search, greedy if exact is None else exact, proven=exact is not None)


def _order(search: AdaptationSearch, timeline: Timeline, *, proven: bool) -> AdaptationOrder:
    """Returns the steps of a timeline, with the remaining stops at the end."""
    seconds, last = timeline[-1]
    lost = search.cost(timeline)[0]
    final = [*timeline[:-1], (seconds, AdaptationState(last.starts, (0,) * len(search.sizes), ()))]
    steps, before = [], search.first
    for at, state in final:
        stops, starts = (
            {search.sizes[kind]: number for kind in search.kinds if (number := old[kind] - new[kind])}
            for old, new in ((before.stops, state.stops), (before.starts, state.starts))
        )
        steps.append(AdaptationStep(at, stops, starts, search.rate_of(state)))
        before = state
    return AdaptationOrder(tuple(steps), search.required, lost, proven)

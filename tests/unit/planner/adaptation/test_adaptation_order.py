"""The order of starts and stops, compared with an enumeration of all orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

import pytest

from cornserve_planner.adaptation import order_search
from cornserve_planner.adaptation.mixture import Adaptation
from cornserve_planner.adaptation.order import AdaptationOrder, order_adaptation
from cornserve_planner.adaptation.order_search import StartableCell
from cornserve_planner.errors import InfeasibleError
from cornserve_planner.solve.cells import Mixture

CLOSE = 1e-6


def cell(gpus: int, rate: float, startup: float = 60.0) -> StartableCell:
    return StartableCell({"A": gpus}, rate, startup)


def change(starts: Mapping[int, int], stops: Mapping[int, int]) -> Adaptation:
    return Adaptation(Mixture({}, 0, 0.0), starts, stops)


def ordered(
    cells: Mapping[int, StartableCell],
    running: Mapping[int, int],
    starts: Mapping[int, int],
    stops: Mapping[int, int],
    required: float,
    free: int,
) -> AdaptationOrder:
    return order_adaptation(cells, running, change(starts, stops), required, {"A": free})


def shown(order: AdaptationOrder) -> list[tuple[float, Mapping[int, int], Mapping[int, int], float]]:
    return [(step.seconds, step.stops, step.starts, step.rate) for step in order.steps]


CELLS = {4: cell(4, 1.0, 30), 16: cell(16, 5.0, 120)}


def test_with_free_gpus_cells_start_before_others_stop() -> None:
    order = ordered(CELLS, {4: 3}, {16: 1}, {4: 3}, 3.0, free=16)

    assert shown(order) == [(0.0, {}, {16: 1}, 3.0), (120.0, {4: 3}, {}, 5.0)]
    assert (order.lost, order.proven, order.shortfalls) == (0.0, True, [])


def test_without_free_gpus_the_shortfall_is_stated() -> None:
    order = ordered(CELLS, {4: 4}, {16: 1}, {4: 4}, 4.0, free=0)

    assert shown(order) == [(0.0, {4: 4}, {16: 1}, 0.0), (120.0, {}, {}, 5.0)]
    assert (order.lost, order.proven, order.shortfalls) == (480.0, True, [(4.0, 120.0)])


def test_cells_that_are_not_needed_stop_first() -> None:
    order = ordered(CELLS, {4: 8}, {16: 1}, {4: 4}, 4.0, free=0)

    assert shown(order) == [(0.0, {4: 4}, {16: 1}, 4.0), (120.0, {}, {}, 9.0)]
    assert order.lost == 0


def test_small_cells_that_start_fast_replace_others_one_by_one() -> None:
    cells = {4: cell(4, 1.0, 30), 8: cell(8, 2.5, 50)}
    order = ordered(cells, {8: 2}, {4: 4}, {8: 2}, 3.0, free=4)

    assert order.proven
    assert [step.seconds for step in order.steps] == [0.0, 30.0, 60.0, 90.0]
    assert order.lost == 0


def test_a_hundred_million_cells_start_together() -> None:
    order = ordered(CELLS, {4: 1}, {4: 2, 16: 10**8}, {}, 1.0, free=16 * 10**8 + 8)

    assert shown(order) == [(0.0, {}, {4: 2, 16: 10**8}, 1.0), (30.0, {}, {}, 3.0), (120.0, {}, {}, 5e8 + 3)]
    assert order.proven


def test_only_stops_take_no_time() -> None:
    assert shown(ordered(CELLS, {4: 3}, {}, {4: 2}, 1.0, free=0)) == [(0.0, {4: 2}, {}, 1.0)]


def test_too_few_free_gpus_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="3 free A GPUs: the adapted plan needs 12 more than are running"):
        ordered(CELLS, {4: 1}, {16: 1}, {4: 1}, 1.0, free=3)


def best_by_enumeration(
    cells: Mapping[int, StartableCell], rate: float, starts: list[int], stops: list[int], required: float, free: int
) -> tuple[float, float]:
    """Returns the fewest lost requests, and the least seconds for them: tries every action at every time."""

    def orders(
        starts: tuple[int, ...], stops: tuple[int, ...], pending: tuple[tuple[float, int], ...], free: int, rate: float
    ) -> Iterator[tuple[float, float]]:
        if not starts and not pending:
            yield 0.0, 0.0
            return
        for size in set(stops):
            others = list(stops)
            others.remove(size)
            yield from orders(starts, tuple(others), pending, free + size, rate - cells[size].rate)
        for size in set(starts):
            if size <= free:
                others = list(starts)
                others.remove(size)
                started = (*pending, (cells[size].startup, size))
                yield from orders(tuple(others), stops, started, free - size, rate)
        if pending:
            waited = min(pending)[0]
            ready = [size for seconds, size in pending if seconds - waited < CLOSE]
            later = tuple((seconds - waited, size) for seconds, size in pending if seconds - waited >= CLOSE)
            lost = max(0.0, required - rate) * waited
            served = rate + sum(cells[size].rate for size in ready)
            for more_lost, more_seconds in orders(starts, stops, later, free, served):
                yield lost + more_lost, waited + more_seconds

    found = list(orders(tuple(starts), tuple(stops), (), free, rate))
    least = min(lost for lost, _ in found)
    return least, min(seconds for lost, seconds in found if lost <= least + CLOSE)


@pytest.mark.parametrize("seed", range(60))
def test_no_order_loses_fewer_requests_or_takes_less_time(seed: int) -> None:
    rng = Random(seed)
    cells = {size: cell(size, rng.randint(size, 3 * size), rng.choice([10, 20, 30, 45])) for size in (1, 2, 4)}
    starts = [rng.choice([1, 2, 4]) for _ in range(rng.randint(1, 2))]
    stops = [rng.choice([1, 2, 4]) for _ in range(rng.randint(0, 2))]
    starts, stops = [size for size in starts if size not in stops], [size for size in stops if size not in starts]
    running = {size: stops.count(size) + rng.randint(0, 1) for size in cells}
    rate = sum(cells[size].rate * number for size, number in running.items())
    after = rate + sum(cells[size].rate for size in starts) - sum(cells[size].rate for size in stops)
    required = min(rate, after) * rng.choice([1.0, 0.8])
    free = max(0, sum(starts) - sum(stops)) + rng.choice([0, 0, 1, 3])

    order = ordered(
        cells,
        running,
        {size: starts.count(size) for size in set(starts)},
        {size: stops.count(size) for size in set(stops)},
        required,
        free,
    )

    lost, seconds = best_by_enumeration(cells, rate, starts, stops, required, free)
    assert order.proven
    assert order.lost == pytest.approx(lost)
    assert order.seconds == pytest.approx(seconds)
    assert order.steps[-1].rate == pytest.approx(after)
    assert sum(missing * span for missing, span in order.shortfalls) == pytest.approx(lost)


def test_a_large_change_is_ordered_without_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {1: cell(1, 1.0, 10), 2: cell(2, 2.5, 25), 4: cell(4, 5.5, 40)}
    exact = ordered(cells, {4: 3}, {1: 4, 2: 4}, {4: 3}, 14.0, free=2)
    monkeypatch.setattr(order_search, "STATES", 3)
    greedy = ordered(cells, {4: 3}, {1: 4, 2: 4}, {4: 3}, 14.0, free=2)

    assert (exact.proven, greedy.proven) == (True, False)
    assert (exact.lost, exact.seconds) <= (greedy.lost, greedy.seconds)
    for order in (exact, greedy):
        free = 2
        for step in order.steps:
            free += sum(size * number for size, number in step.stops.items())
            free -= sum(size * number for size, number in step.starts.items())
            assert free >= 0
        assert order.steps[-1].rate == pytest.approx(14.0)

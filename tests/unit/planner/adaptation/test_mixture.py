"""Mixtures of cells: the exact algorithm, compared with the paper's greedy one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from benchmarks.harness.planner.greedy import greedy
from cornserve_planner.adaptation.mixture import adapt_mixture
from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.solve.cells import Cell, efficient_cells, fewest_gpus, most_requests

TWO = (Cell(1, 1.0), Cell(2, 2.9))
QWEN_3_OMNI = (Cell(8, 1.0), Cell(16, 2.68))
"""Relative rates of [C §7.2]."""


def greedy_gpus(cells: tuple[Cell, ...], rate: float) -> int:
    return sum(gpus * count for gpus, count in greedy(cells, rate).items())


def fewest_by_dynamic_programming(cells: tuple[Cell, ...], rate: int) -> int:
    """Returns the fewest GPUs of any mixture that serves `rate`. Rates are whole numbers."""
    best = [0]
    while best[-1] < rate:
        gpus = len(best)
        best.append(max([best[-1], *(best[gpus - cell.gpus] + int(cell.rate) for cell in cells if cell.gpus <= gpus)]))
    return len(best) - 1


def test_the_greedy_algorithm_takes_three_gpus_where_two_suffice() -> None:
    assert greedy_gpus(TWO, 2.5) == 3
    mixture = fewest_gpus(TWO, 2.5)
    assert (mixture.gpus, mixture.counts, mixture.rate) == (2, {2: 1}, 2.9)


@pytest.mark.parametrize("rate", [2.0001, 2.1, 2.5, 2.67, 2.6799])
def test_cells_of_qwen_3_omni_need_16_gpus_where_the_greedy_algorithm_takes_24(rate: float) -> None:
    assert greedy_gpus(QWEN_3_OMNI, rate) == 24
    assert fewest_gpus(QWEN_3_OMNI, rate).counts == {16: 1}


def test_a_cell_on_which_the_model_does_not_fit_is_not_used() -> None:
    cells = (Cell(1, 0.0), Cell(2, 1.0), Cell(4, 2.5))
    assert fewest_gpus(cells, 2.25).counts == {4: 1}
    assert fewest_gpus(cells, 0.5).counts == {2: 1}
    assert most_requests(cells, 7).counts == {2: 1, 4: 1}


def test_only_cells_that_beat_smaller_ones_are_efficient() -> None:
    cells = (Cell(1, 1.0), Cell(2, 2.0), Cell(4, 4.1), Cell(8, 8.1), Cell(16, 17.0))
    assert [cell.gpus for cell in efficient_cells(reversed(cells))] == [1, 4, 16]


def test_a_cell_that_serves_more_by_rounding_only_is_not_efficient() -> None:
    assert [cell.gpus for cell in efficient_cells((Cell(8, 0.7), Cell(16, 1.4 * (1 + 1e-12))))] == [8]


def test_rounding_does_not_cost_a_cell() -> None:
    assert fewest_gpus([Cell(1, 0.3)], 0.1 + 0.2).gpus == 1


def test_a_rate_of_zero_needs_no_cell() -> None:
    assert fewest_gpus(TWO, 0.0).counts == {}


def test_a_target_that_needs_more_cells_than_a_plan_can_have_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match=r"rate: needs \S+e\+\d+ cells: give one that needs at most 1e\+18"):
        fewest_gpus(TWO, 1e300)
    with pytest.raises(InvalidInputError, match=r"gpus: needs \S+e\+\d+ cells: give one that needs at most 1e\+18"):
        most_requests(TWO, 10**400)


def test_a_rate_that_no_mixture_serves_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match=r"all cells have rate 0, but 1 requests/s"):
        fewest_gpus([Cell(1, 0.0)], 1.0)
    with pytest.raises(InfeasibleError, match=r"budget of 3 GPUs: no cell fits: the smallest .* needs 8"):
        most_requests(QWEN_3_OMNI, 3)


@pytest.mark.parametrize(
    ("gpus", "rate", "error"),
    [
        (0, 1.0, "cell.gpus: must be at least 1, not 0"),
        (2, -1.0, "cell.rate: must be a finite number of at least 0, not -1"),
        (2, math.nan, "cell.rate: must be a finite number of at least 0, not nan"),
    ],
)
def test_an_invalid_cell_is_rejected(gpus: int, rate: float, error: str) -> None:
    with pytest.raises(InvalidInputError, match=error):
        Cell(gpus, rate)


def test_two_cells_of_one_size_are_rejected() -> None:
    with pytest.raises(InvalidInputError, match="two cells have 2 GPUs"):
        fewest_gpus([*TWO, Cell(2, 3.0)], 1.0)


def test_sizes_that_are_not_multiples_are_rejected() -> None:
    with pytest.raises(InvalidInputError, match="a cell of 3 GPUs is not a multiple of one of 2: use powers of two"):
        fewest_gpus([*TWO, Cell(3, 4.0)], 1.0)


def test_cells_of_one_size_need_not_have_a_power_of_two() -> None:
    assert fewest_gpus([Cell(3, 1.0)], 2.5).counts == {3: 3}


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_an_invalid_target_is_rejected(rate: float) -> None:
    with pytest.raises(InvalidInputError, match="rate: must be a finite number of at least 0"):
        fewest_gpus(TWO, rate)


def random_cells(rng: Random, sizes: Sequence[int]) -> tuple[Cell, ...]:
    """Draws cells with similar rates per GPU, as whole numbers.

    Some have rate 0 and some are unusually fast. At least one has a positive rate.
    """
    chosen = sorted(rng.sample(sizes, rng.randint(1, len(sizes))))
    rates = [rng.choice([0, *range(5 * size, 15 * size)]) for size in chosen]
    if not any(rates):
        rates[rng.randrange(len(rates))] = 1
    return tuple(Cell(size, float(rate)) for size, rate in zip(chosen, rates, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_no_mixture_needs_fewer_gpus(seed: int) -> None:
    rng = Random(seed)
    for _ in range(150):
        cells, rate = random_cells(rng, [1, 2, 4, 8, 16, 32]), rng.randint(1, 600)
        mixture = fewest_gpus(cells, float(rate))
        assert mixture.gpus == fewest_by_dynamic_programming(cells, rate), (cells, rate)
        assert mixture.rate >= rate
        assert most_requests(cells, mixture.gpus).rate >= rate


@pytest.mark.parametrize("seed", range(60))
def test_adaptation_minimises_gpus_and_then_starts_and_stops(seed: int) -> None:
    rng = Random(seed)
    cells, rate = random_cells(rng, [4, 8, 16, 32]), rng.randint(0, 1500)
    running = {cell.gpus: rng.randint(0, 4) for cell in cells}
    change = adapt_mixture(cells, running, float(rate))
    fewest = fewest_gpus(cells, float(rate)).gpus
    assert change.mixture.gpus == fewest
    assert change.mixture.rate >= rate
    assert {
        size: count + change.starts.get(size, 0) - change.stops.get(size, 0)
        for size, count in running.items()
        if count + change.starts.get(size, 0) != change.stops.get(size, 0)
    } == change.mixture.counts
    for counts in product(*(range(fewest // cell.gpus + 1) for cell in cells)):
        if sum(cell.gpus * n for cell, n in zip(cells, counts, strict=True)) == fewest and rate <= sum(
            cell.rate * n for cell, n in zip(cells, counts, strict=True)
        ):
            assert change.changes <= sum(abs(running[c.gpus] - n) for c, n in zip(cells, counts, strict=True))


def test_adaptation_keeps_running_cells() -> None:
    cells = (Cell(1, 1.0), Cell(2, 2.0), Cell(4, 4.0))
    change = adapt_mixture(cells, {1: 4}, 6.0)
    assert (change.starts, change.stops, change.mixture.gpus) == ({2: 1}, {}, 6)
    assert adapt_mixture(cells, {4: 1, 1: 2}, 6.0).changes == 0
    assert adapt_mixture(cells, {4: 1, 1: 2}, 0.0).stops == {1: 2, 4: 1}


def test_running_cells_of_unknown_size_are_rejected() -> None:
    with pytest.raises(InvalidInputError, match=r"running\.8: no cell has 8 GPUs: use one of"):
        adapt_mixture(TWO, {8: 1}, 1.0)
    with pytest.raises(InvalidInputError, match=r"running\.2: must be at least 0, not -1"):
        adapt_mixture(TWO, {2: -1}, 1.0)

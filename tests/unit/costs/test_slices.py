"""The slow tests are divided among slices."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.costs.budgets import Budgets, Cost
from tests.costs.slices import Slice

COSTS = st.dictionaries(st.text(min_size=1), st.builds(Cost, st.integers(1, 1000), st.just(0)), max_size=40)


def slices(count: int, costs: dict[str, Cost]) -> list[set[str]]:
    budgets = Budgets(Cost(0, 0), costs)
    return [Slice(number, count).groups(costs, budgets) for number in range(1, count + 1)]


@given(COSTS, st.integers(1, 12))
def test_each_group_is_in_exactly_one_slice(costs: dict[str, Cost], count: int) -> None:
    assert Counter(chain.from_iterable(slices(count, costs))) == Counter(costs.keys())


@given(COSTS, st.integers(1, 12))
def test_slices_differ_by_at_most_one_group(costs: dict[str, Cost], count: int) -> None:
    sums = [sum(costs[group].cpu_seconds for group in groups) for groups in slices(count, costs)]

    assert max(sums) - min(sums) <= max((cost.cpu_seconds for cost in costs.values()), default=0)


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/0", "a/b", "-1/8", "3/8/8"])
def test_a_wrong_slice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a slice, such as 3/8"):
        Slice.parse(text)

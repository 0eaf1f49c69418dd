"""The slow tests are divided among slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.costs.budgets import Budgets, Cost
from tests.costs.slices import Slice

NAMES = st.sets(st.text(min_size=1), max_size=40)
EXPENSIVE = [Cost(cpu_seconds, 0) for cpu_seconds in (900, 700, 700, 600)]


def slice_of(group: str, others: set[str], budgets: Budgets, count: int) -> int:
    (number,) = [n for n in range(1, count + 1) if group in Slice(n, count).groups({group, *others}, budgets)]
    return number


@given(NAMES, NAMES, st.integers(1, 12))
def test_each_group_is_in_one_slice_whatever_other_groups_exist(groups: set[str], others: set[str], count: int) -> None:
    budgets = Budgets(Cost(1, 0), dict(zip(sorted(groups), EXPENSIVE, strict=False)))

    for group in groups:
        assert slice_of(group, groups, budgets, count) == slice_of(group, others, budgets, count)


@given(st.sets(st.text(min_size=1), min_size=4, max_size=4))
def test_expensive_groups_are_in_different_slices(groups: set[str]) -> None:
    budgets = Budgets(Cost(1, 0), dict(zip(groups, EXPENSIVE, strict=True)))

    assert {slice_of(group, groups, budgets, 4) for group in groups} == {1, 2, 3, 4}


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/0", "a/b", "-1/8", "3/8/8"])
def test_a_wrong_slice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a slice, such as 3/8"):
        Slice.parse(text)

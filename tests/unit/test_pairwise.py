"""The settings of tests that combine each two factors."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.pairwise import MAX_FACTORS, pairwise_settings


@pytest.mark.parametrize("count", range(2, MAX_FACTORS + 1))
def test_each_two_factors_occur_in_all_combinations(count: int) -> None:
    settings = pairwise_settings(range(count))

    assert len(settings) == 6
    for first, second in combinations(range(count), 2):
        assert {(first in setting, second in setting) for setting in settings} == {
            (False, False),
            (False, True),
            (True, False),
            (True, True),
        }


def test_too_many_factors_are_refused() -> None:
    with pytest.raises(ValueError, match="11 factors: six sets combine at most 10"):
        pairwise_settings(range(MAX_FACTORS + 1))

"""Apps that share an executor group are charged with the seconds that their invocations took."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cornserve_policies.cost_division import shares_of

APPS = st.sampled_from("abcde")


@given(st.sets(APPS, min_size=1), st.dictionaries(APPS, st.floats(0, 1e9)))
def test_the_shares_of_a_group_add_up_to_one(apps: set[str], used: dict[str, float]) -> None:
    shares = shares_of(apps, used)
    assert math.isclose(math.fsum(shares.values()), 1)
    assert apps <= shares.keys()


def test_idle_time_is_divided_like_the_time_of_invocations() -> None:
    assert shares_of(["a", "b", "c"], {"a": 3.0, "b": 1.0}) == {"a": 0.75, "b": 0.25, "c": 0.0}


def test_apps_share_a_group_without_invocations_equally() -> None:
    assert shares_of(["a", "b"], {}) == {"a": 0.5, "b": 0.5}

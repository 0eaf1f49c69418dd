from __future__ import annotations

import pytest

from cornserve.app.path_weights import weights_of


@pytest.mark.parametrize(
    ("shares", "weights"),
    [
        ({"a": 0.3, "b": 0.7}, {"a": 3, "b": 7}),
        ({"a": 0.25, "b": 0.75, "c": 0}, {"a": 1, "b": 3, "c": 0}),
        ({"a": 30, "b": 70}, {"a": 30, "b": 70}),
        ({"a": 2_000_000, "b": 4_000_000}, {"a": 1, "b": 2}),
        ({"a": 0.123456789, "b": 1}, {"a": 123_457, "b": 1_000_000}),
        ({"a": 1e-9, "b": 1.5}, {"a": 1, "b": 1_000_000}),
        ({"a": 0.0}, {"a": 0}),
        ({}, {}),
    ],
)
def test_shares_become_integer_weights_with_the_same_proportions(
    shares: dict[str, float], weights: dict[str, int]
) -> None:
    assert weights_of(shares) == weights


@pytest.mark.parametrize("share", [-0.5, float("nan"), float("inf")])
def test_shares_that_are_no_probabilities_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"shares: .*: give finite numbers of at least 0"):
        weights_of({"a": share, "b": 1})

from __future__ import annotations

import pytest

from cornserve.cli.logs import new_lines


@pytest.mark.parametrize(
    ("before", "current", "new"),
    [
        ("", "", ""),
        ("", "ab", "ab"),
        ("ab", "ab", ""),
        ("ab", "abc", "c"),
        ("abc", "bcd", "d"),
        ("aa", "aaa", "a"),
        ("ab", "xy", "xy"),
    ],
)
def test_lines_after_the_overlap_are_new(before: str, current: str, new: str) -> None:
    assert new_lines(list(before), list(current)) == list(new)

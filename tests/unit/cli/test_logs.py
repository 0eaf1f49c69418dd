from __future__ import annotations

import pytest

from cornserve.cli.logs import added


@pytest.mark.parametrize(
    ("before", "now", "new"),
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
def test_only_new_lines_are_shown(before: str, now: str, new: str) -> None:
    assert added(list(before), list(now)) == list(new)

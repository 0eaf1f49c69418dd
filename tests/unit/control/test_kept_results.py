"""Results of measurements that a ConfigMap keeps."""

from __future__ import annotations

import json

import pytest

from cornserve.control.profiling.kept_results import surplus_results

SIZE = 1000


def results(*dates: str) -> str:
    """Returns results of `SIZE` bytes."""
    text = json.dumps({"measurements": [{"date": date} for date in dates]})
    return text.ljust(SIZE)


KEPT = {
    "b": results("2026-11-03T10:00:00+00:00", "2026-10-03T10:00:00+00:00"),
    "a": results("2026-11-04T10:00:00+00:00"),
    "c": results("2026-11-02T10:00:00+00:00"),
    "d": results(),
    "e": "damaged".ljust(SIZE),
}


@pytest.mark.parametrize(
    ("places", "added", "surplus"),
    [
        (6, "f", []),
        (5, "f", ["d"]),
        (3, "f", ["d", "e", "c"]),
        (1, "f", ["d", "e", "c", "b", "a"]),
        (5, "c", []),
        (2, "c", ["d", "e", "b"]),
    ],
)
def test_the_oldest_results_are_removed_for_new_ones(
    places: int, added: str, surplus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.profiling.kept_results.MAX_KEPT_BYTES", places * (SIZE + 1))

    assert surplus_results(KEPT, {added: results("2026-11-05T10:00:00+00:00")}) == surplus

"""Items with a due time are served earliest first, and do not delay others without a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cornserve.due_queue import DEFAULT_TARGET_US, NO_DUE_TIME, DueQueue, DueTime

SECOND = 1_000_000


def _drained(queue: DueQueue[str]) -> list[str]:
    items = []
    while queue:
        assert queue.peek() == queue.peek()
        items.append(queue.pop())
    return items


def test_items_are_served_in_the_order_in_which_they_are_due() -> None:
    queue = DueQueue[str]()
    for name, due in (("late", 9), ("soon", 3), ("middle", 5), ("soon too", 3)):
        queue.push(name, name, DueTime(1, due))
    assert _drained(queue) == ["soon", "soon too", "middle", "late"]


def test_items_without_a_due_time_are_served_fairly() -> None:
    queue = DueQueue[str]()
    for name in ("a1", "a2", "a3", "b1"):
        queue.push(name, name[0], NO_DUE_TIME)
    assert _drained(queue) == ["a1", "b1", "a2", "a3"]


def test_items_with_and_without_a_due_time_share_the_queue() -> None:
    queue = DueQueue[str]()
    queue.push("old", "o", DueTime(0))
    queue.push("before", "b", DueTime(5 * SECOND, DEFAULT_TARGET_US - 1))
    queue.push("after", "a", DueTime(5 * SECOND, DEFAULT_TARGET_US + 1))
    assert _drained(queue) == ["before", "old", "after"]


@given(st.integers(1, 60), st.integers(1, 5 * SECOND))
def test_an_item_without_a_due_time_is_served_after_a_bounded_time(rate: int, target: int) -> None:
    """Items with targets arrive without an end, at the rate at which items are served."""
    queue, step, waited = DueQueue[str](), SECOND // rate, 0
    queue.push("patient", "p", DueTime(0))
    while True:
        queue.push("urgent", "u", DueTime(waited, waited + target))
        if queue.pop() == "patient":
            break
        waited += step
        assert waited <= DEFAULT_TARGET_US + step


def test_an_empty_queue_has_no_next_item() -> None:
    with pytest.raises(IndexError):
        DueQueue[str]().peek()

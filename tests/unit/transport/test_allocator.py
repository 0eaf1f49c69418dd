"""Pages are given to one tensor at a time, and come back whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cornserve.transport.memory.allocator import PageAllocator

PAGES = 64

steps = st.lists(st.one_of(st.integers(1, PAGES), st.integers(-100, -1)), max_size=200)
"""A positive number takes so many pages; a negative one gives back one of those that are taken."""


@given(first=st.integers(0, 1000), steps=steps)
def test_taken_pages_never_overlap_and_are_refused_only_if_there_is_no_such_run(first: int, steps: list[int]) -> None:
    allocator = PageAllocator(first, PAGES)
    taken: list[range] = []
    for step in steps:
        if step > 0:
            start = allocator.allocate(step)
            if start is None:
                assert longest_free_run(first, taken) < step
            else:
                pages = range(start, start + step)
                assert first <= start <= first + PAGES - step
                assert not any(set(pages) & set(other) for other in taken)
                taken.append(pages)
        elif taken:
            pages = taken.pop(-step % len(taken))
            allocator.free(pages.start, len(pages))
        assert allocator.free_pages == PAGES - sum(map(len, taken))


@given(steps=st.lists(st.integers(1, 20), max_size=50), order=st.randoms(use_true_random=False))
def test_all_pages_are_one_run_again_in_whatever_order_they_come_back(steps: list[int], order: object) -> None:
    allocator = PageAllocator(0, PAGES)
    taken = [(start, count) for count in steps if (start := allocator.allocate(count)) is not None]
    order.shuffle(taken)  # type: ignore[attr-defined]
    for start, count in taken:
        allocator.free(start, count)

    assert allocator.allocate(PAGES) == 0


def longest_free_run(first: int, taken: list[range]) -> int:
    used = {page for pages in taken for page in pages}
    longest = run = 0
    for page in range(first, first + PAGES):
        run = 0 if page in used else run + 1
        longest = max(longest, run)
    return longest

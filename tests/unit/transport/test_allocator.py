"""Pages are allocated to one tensor at a time, and freed pages are merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cornserve.transport.memory.allocator import PageAllocator

PAGES = 64

steps = st.lists(st.one_of(st.integers(1, PAGES), st.integers(-100, -1)), max_size=200)
"""A positive number allocates that number of pages; a negative one frees an allocated run."""


@given(first=st.integers(0, 1000), steps=steps)
def test_allocated_pages_never_overlap_and_allocation_fails_only_without_a_long_enough_run(
    first: int, steps: list[int]
) -> None:
    allocator = PageAllocator(first, PAGES)
    allocated: list[range] = []
    for step in steps:
        if step > 0:
            start = allocator.allocate(step)
            if start is None:
                assert longest_free_run(first, allocated) < step
            else:
                pages = range(start, start + step)
                assert first <= start <= first + PAGES - step
                assert not any(set(pages) & set(other) for other in allocated)
                allocated.append(pages)
        elif allocated:
            pages = allocated.pop(-step % len(allocated))
            allocator.free(pages.start, len(pages))
        assert allocator.free_pages == PAGES - sum(map(len, allocated))


@given(steps=st.lists(st.integers(1, 20), max_size=50), order=st.randoms(use_true_random=False))
def test_pages_freed_in_any_order_are_merged_into_one_run(steps: list[int], order: object) -> None:
    allocator = PageAllocator(0, PAGES)
    allocated = [(start, count) for count in steps if (start := allocator.allocate(count)) is not None]
    order.shuffle(allocated)  # type: ignore[attr-defined]
    for start, count in allocated:
        allocator.free(start, count)

    assert allocator.allocate(PAGES) == 0


def longest_free_run(first: int, allocated: list[range]) -> int:
    used = {page for pages in allocated for page in pages}
    longest = run = 0
    for page in range(first, first + PAGES):
        run = 0 if page in used else run + 1
        longest = max(longest, run)
    return longest

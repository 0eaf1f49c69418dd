from __future__ import annotations

from cornserve.fair_queue import FairQueue


def drain(queue: FairQueue[str]) -> str:
    return "".join(queue.pop() for _ in range(len(queue)))


def queue_of(items: str) -> FairQueue[str]:
    """A queue of letters. The owner of a letter is its lower case."""
    queue = FairQueue[str]()
    for item in items:
        queue.push(item, item.lower())
    return queue


def test_items_of_one_owner_keep_their_order() -> None:
    assert drain(queue_of("aAaA")) == "aAaA"


def test_each_round_serves_every_owner_once() -> None:
    assert drain(queue_of("aaaabbc")) == "abcabaa"


def test_a_new_owner_joins_the_current_round() -> None:
    queue = queue_of("aaaa")
    popped = queue.pop()

    queue.push("b", "b")

    assert popped + drain(queue) == "abaaa"


def test_an_owner_is_served_once_per_round_even_if_it_pushes_again() -> None:
    queue = queue_of("aaabbb")
    popped = queue.pop() + queue.pop() + queue.pop()

    queue.push("A", "a")
    queue.push("c", "c")

    assert popped + drain(queue) == "ababcabA"


def test_peek_returns_the_next_item_without_removing_it() -> None:
    queue = queue_of("ab")
    assert (queue.peek(), queue.pop(), queue.peek(), len(queue)) == ("a", "a", "b", 1)


def test_an_empty_queue_remembers_no_owners() -> None:
    queue = queue_of("aaabbb")
    drain(queue)
    queue.push("a", "a")
    queue.push("b", "b")
    queue.push("a", "a")

    assert drain(queue) == "aba"

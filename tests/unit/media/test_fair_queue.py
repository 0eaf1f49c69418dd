from __future__ import annotations

from cornserve_executors.media.fair_queue import FairQueue


def order(turns: FairQueue[str]) -> str:
    return "".join(turns.take() for _ in range(len(turns)))


def waiting(items: str) -> FairQueue[str]:
    """Each letter belongs to the owner of its name, whatever its case."""
    turns = FairQueue[str]()
    for item in items:
        turns.add(item, item.lower())
    return turns


def test_the_items_of_one_come_in_their_order() -> None:
    assert order(waiting("aAaA")) == "aAaA"


def test_each_has_a_turn_in_each_round() -> None:
    assert order(waiting("aaaabbc")) == "abcabaa"


def test_who_comes_anew_has_a_turn_in_the_present_round() -> None:
    turns = waiting("aaaa")
    taken = turns.take()

    turns.add("b", "b")

    assert taken + order(turns) == "abaaa"


def test_who_had_a_turn_in_this_round_and_waits_has_none_left_in_it() -> None:
    turns = waiting("aaabbb")
    taken = turns.take() + turns.take() + turns.take()

    turns.add("A", "a")
    turns.add("c", "c")

    assert taken + order(turns) == "ababcabA"


def test_whose_turn_is_next_is_told_before_it_is_taken() -> None:
    turns = waiting("ab")
    assert (turns.next(), turns.take(), turns.next(), len(turns)) == ("a", "a", "b", 1)


def test_nothing_is_remembered_of_those_who_have_left() -> None:
    turns = waiting("aaabbb")
    order(turns)
    turns.add("a", "a")
    turns.add("b", "b")
    turns.add("a", "a")

    assert order(turns) == "aba"

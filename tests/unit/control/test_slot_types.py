"""Tests of types of slots: their texts and their cores."""

from __future__ import annotations

import os

import pytest

from cornserve.control.launcher.local.slot_types import SlotType, SlotTypeError, bind_slots, parse_slot_types

CORES = sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("small=2", SlotType("small", 2)),
        ("small=2x1core", SlotType("small", 2)),
        ("a.b-c=3x1cores@0.25", SlotType("a.b-c", 3, 1, 0.25)),
    ],
)
def test_a_type_is_parsed_and_written(text: str, expected: SlotType) -> None:
    assert SlotType.parse(text) == expected
    assert SlotType.parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["small"], "'small' is not a slot type: give NAME=COUNT"),
        (["small=1x1"], "'small=1x1' is not a slot type"),
        (["=1"], "'=1' is not a slot type"),
        (["small=0"], "'small=0' has 0 slots: give a number from 1 to 64"),
        (["small=65"], "'small=65' has 65 slots"),
        (["big=1x9999cores"], f"'big=1x9999cores' has 9999 cores: give a number from 1 to {len(CORES)}"),
        (["a=1", "b=1", "a=2"], "slots of the type a are given more than once"),
    ],
)
def test_wrong_types_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(SlotTypeError) as caught:
        parse_slot_types(texts)
    assert message in str(caught.value)


def test_slots_get_cores_in_turn_and_share_them_if_there_are_not_enough() -> None:
    slots = bind_slots([SlotType("small", len(CORES)), SlotType("all", 1, len(CORES))])
    assert [slot.cores for slot in slots] == [*((core,) for core in CORES), tuple(CORES)]
    assert [slot.id for slot in slots][:1] == ["small-0"]

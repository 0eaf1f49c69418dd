"""Types of slots: parts of the machine's cores that executors use as they use GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Self

MAX_SLOTS = 64

_SLOT_TYPE = re.compile(
    r"(?P<name>[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)=(?P<count>[0-9]{1,4})"
    r"(x(?P<cores>[0-9]{1,4})cores?)?(@(?P<price>[0-9]+(\.[0-9]+)?))?"
)


class SlotTypeError(Exception):
    """A slot type is invalid. The message is for users."""


@dataclass(frozen=True, slots=True)
class SlotType:
    """Slots with the same number of cores.

    Args:
        count: number of slots.
        cores: number of cores of each slot.
        price: dollars per hour of one slot, or None.
    """

    name: str
    count: int
    cores: int = 1
    price: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `NAME=COUNT[xCORES cores][@DOLLARS]` without the space. Raises `SlotTypeError`."""
        found = _SLOT_TYPE.fullmatch(text)
        if found is None:
            raise SlotTypeError(
                f"{text!r} is not a slot type: give NAME=COUNT, such as small=2, or NAME=COUNTxCORES@DOLLARS_PER_HOUR, "
                "such as big=1x2cores@0.5"
            )
        price = None if found["price"] is None else float(found["price"])
        slot_type = cls(found["name"], int(found["count"]), int(found["cores"] or 1), price)
        for unit, number, most in (("slots", slot_type.count, MAX_SLOTS), ("cores", slot_type.cores, _core_count())):
            if not 1 <= number <= most:
                raise SlotTypeError(f"{text!r} has {number} {unit}: give a number from 1 to {most}")
        return slot_type

    def __str__(self) -> str:
        """Returns the text that `parse` reads."""
        price = "" if self.price is None else f"@{self.price:f}".rstrip("0").rstrip(".")
        return f"{self.name}={self.count}x{self.cores}cores{price}"


@dataclass(frozen=True, slots=True)
class BoundSlot:
    """A slot of a type. Its replicas run on its cores."""

    id: str
    type: str
    cores: tuple[int, ...]


def parse_slot_types(texts: Sequence[str]) -> tuple[SlotType, ...]:
    """Raises `SlotTypeError`."""
    types = tuple(map(SlotType.parse, texts))
    names = [slot_type.name for slot_type in types]
    for name in names:
        if names.count(name) > 1:
            raise SlotTypeError(f"slots of the type {name} are given more than once: give their sum once")
    return types


def bind_slots(types: Sequence[SlotType]) -> list[BoundSlot]:
    """Assigns cores to slots in turn. If the slots need more cores than exist, several slots share a core.

    Slots of a later machine with the same types have the same ids.
    """
    available = cycle(sorted(os.sched_getaffinity(0)))
    return [
        BoundSlot(f"{slot_type.name}-{index}", slot_type.name, tuple(sorted(islice(available, slot_type.cores))))
        for slot_type in types
        for index in range(slot_type.count)
    ]


def _core_count() -> int:
    return len(os.sched_getaffinity(0))

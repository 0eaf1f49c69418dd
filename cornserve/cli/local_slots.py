"""The slots of the instance of this machine, and the replicas that hold them."""

from __future__ import annotations

from cornserve.home import Home
from cornserve.instance import Instance


def describe_slots(home: Home, instance: Instance) -> str:
    """Returns the slots with types of a running instance and which of them are free, or an empty text."""
    from cornserve.control.launcher.local.slot_types import bind_slots, parse_slot_types
    from cornserve.control.launcher.local.state_dir import held_slots

    types = parse_slot_types(instance.slots)
    held = held_slots(home.replicas)
    parts = []
    for slot_type in types:
        slots = [slot for slot in bind_slots(types) if slot.type == slot_type.name]
        free = sum(slot.id not in held for slot in slots)
        cores = " ".join(",".join(map(str, slot.cores)) for slot in slots)
        price = "" if slot_type.price is None else f", {slot_type.price:g} dollars/hour each"
        parts.append(f"{slot_type.name}: {free} of {slot_type.count} free (cores {cores}{price})")
    return "; ".join(parts)

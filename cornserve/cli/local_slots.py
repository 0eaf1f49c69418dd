"""The slots of the instance of this machine, and the replicas that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve.cli.console import CliError
from cornserve.home import Home
from cornserve.instance import Instance

if TYPE_CHECKING:
    from cornserve.client import Client


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


def check_slots(client: Client, gpus: int) -> None:
    """Raises `CliError` if a plan for this number of GPUs needs more slots than the instance of this machine has.

    The slots of other gateways are unknown: the controller checks them.
    """
    from cornserve.control.launcher.local.device_slots import DeviceSlots
    from cornserve.control.launcher.local.slot_types import parse_slot_types

    instance = Instance.find_running(Home.default())
    if instance is None or client.url not in (instance.url, *instance.gateways):
        return
    slots = DeviceSlots.detect(
        gpus=instance.gpus, cpu_slots=instance.cpu_slots, slot_types=parse_slot_types(instance.slots)
    )
    total = slots.count(None).total
    if gpus > total:
        plural = "" if total == 1 else "s"
        raise CliError(
            f"the plan needs {gpus} {slots.kind}s, but the instance has {total}: plan for at most {total} "
            f"{slots.kind}{plural} with --gpus"
        )

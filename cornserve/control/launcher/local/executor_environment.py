"""The environment of executors on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cornserve.control.launcher.local.device_slots import DeviceSlots

_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "SPT_NOENV": "1",  # Keeps `setproctitle` from overwriting the environment with the process title.
}


def executor_environment(device_slots: DeviceSlots, slots: Sequence[str] = ()) -> dict[str, str]:
    """Returns the environment of executors with these slots, without the variables of one replica."""
    return {**os.environ, **_ENVIRONMENT, **device_slots.environment(slots)}

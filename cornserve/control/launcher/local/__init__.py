"""Replicas as processes of this machine, each with a session, a folder and slots of its own."""

from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher

__all__ = ["DeviceSlots", "LocalLauncher"]

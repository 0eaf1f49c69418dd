"""Launcher for one machine. Each replica is a process with its own session, directory and device slots."""

from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher

__all__ = ["DeviceSlots", "LocalLauncher"]

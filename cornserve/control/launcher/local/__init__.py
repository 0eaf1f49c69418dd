"""Replicas as processes of this machine, each with a session, a folder and slots of its own."""

from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.slots import Slots

__all__ = ["LocalLauncher", "Slots"]

"""The exit statuses of executors that launchers distinguish."""

from __future__ import annotations

from typing import Final

CANNOT_START: Final = 2
"""The executor would not start the next time either: its settings, its model or the machine have to change first."""

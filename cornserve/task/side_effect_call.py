"""The description of a call by `recorded`."""

from __future__ import annotations

from typing import NamedTuple


class SideEffectCall(NamedTuple):
    """The description of a call, by which a replay is compared with its recording."""

    function: str
    """The name of the function."""
    line: str = ""
    """The line of the app that makes the call, such as "app.py:12"."""
    arguments: bytes = b"{}"
    """The arguments as a JSON object, see `cornserve.task.call_arguments`."""

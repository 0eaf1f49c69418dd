"""Stack dumps of faulthandler."""

from __future__ import annotations

import re

_FRAME = re.compile(
    r'^  File "(?P<file>.{0,1000})", line (?P<line>\d{1,10}) in (?P<function>.{1,1000})\n', re.MULTILINE
)
"""A frame. faulthandler cuts long names, but the app's code can write lines whose search would take seconds."""


def has_frame(dump: str, source: str) -> bool:
    """Returns whether the text has a complete frame of the file `source`. A process writes its stack in small parts."""
    return any(frame["file"] == source for frame in _FRAME.finditer(dump))


def find_location(dump: str, source: str) -> str:
    """Returns where the code is in the last dump of the text, such as `app.py:12 in invoke`.

    This is the innermost frame of the file `source`, and the innermost frame of all if none is in that file. Returns an
    empty text if the dump has no frames.
    """
    last = dump[max(dump.rfind("Stack (most recent call first)"), 0) :]
    frames = list(_FRAME.finditer(last))
    frame = next((frame for frame in frames if frame["file"] == source), frames[0] if frames else None)
    if frame is None:
        return ""
    return f"{frame['file'].rpartition('/')[2]}:{frame['line']} in {frame['function']}"

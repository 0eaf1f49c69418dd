"""Descriptions of the places where a replay differs from its recording."""

from __future__ import annotations

import json
import sys
from types import CodeType
from typing import Any

LIBRARIES = frozenset({"cornserve", "cornserve_tasklib"})
"""Packages whose lines are only named if no other code is on the stack."""

MAX_CHARACTERS = 60
"""Longer values are cut."""


def calling_line(outermost: CodeType) -> str:
    """Returns the line of the app that makes the current call, such as "app.py:12".

    Args:
        outermost: the code of a function on the stack that runs the app.
    """
    fallback = ""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code is not outermost:
        package, _, module = str(frame.f_globals.get("__name__", "")).partition(".")
        if not (package == "cornserve" and module.startswith("task.")):
            _, _, file = frame.f_code.co_filename.rpartition("/")
            line = f"{file}:{frame.f_lineno}"
            if package not in LIBRARIES:
                return line
            fallback = fallback or line
        frame = frame.f_back
    return fallback


def first_difference(recorded: bytes, repeated: bytes) -> str:
    """Returns where two inputs, given as JSON, differ first, and both values. Empty if they are equal."""
    return _difference(json.loads(recorded), json.loads(repeated), "")


def _difference(recorded: Any, repeated: Any, path: str) -> str:
    if recorded == repeated:
        return ""
    if isinstance(recorded, dict) and isinstance(repeated, dict):
        for name in recorded | repeated:
            inner = f"{path}.{name}" if path else name
            if name not in recorded or name not in repeated:
                given = "only in the recording" if name in recorded else "not in the recording"
                return f"`{inner}` is {given}"
            if found := _difference(recorded[name], repeated[name], inner):
                return found
    if isinstance(recorded, list) and isinstance(repeated, list):
        for index, (old, new) in enumerate(zip(recorded, repeated, strict=False)):
            if found := _difference(old, new, f"{path}[{index}]"):
                return found
        return f"`{path}` has {len(recorded)} elements in the recording, and {len(repeated)} now"
    return f"`{path}` is {_quoted(recorded)} in the recording, and {_quoted(repeated)} now"


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"

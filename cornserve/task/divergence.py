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


def changed_task(recorded: str, line: str, repeated: str, repeated_line: str) -> str:
    """Describes a call of another task or function than the recorded one, or of the same task with other settings.

    Args:
        recorded, repeated: names of tasks or functions.
        line, repeated_line: lines of the app that call them.
    """
    name = "it with other settings" if recorded == repeated else recorded
    return f"{line} called {name} in the recording, {repeated_line} calls {repeated} now"


def added_call(name: str, line: str) -> str:
    """Describes a call of a task or function that the recording does not have.

    Args:
        line: the line of the app that makes the call.
    """
    return f"{line} calls {name} now, and did not in the recording"


def missing_call(name: str, line: str) -> str:
    """Describes a call of a task that is not repeated.

    Args:
        line: the line of the app that has made the call.
    """
    return f"{line} called {name} in the recording, and does not now"


def changed_input(recorded: bytes, line: str, repeated: bytes, repeated_line: str) -> str:
    """Describes a call with another input than the recorded one.

    Args:
        recorded, repeated: the inputs as JSON.
        line, repeated_line: lines of the app that make the calls.
    """
    difference = first_difference(recorded, repeated) or "a tensor, a stream or a medium is another one"
    return f"its input differs from the recorded one: {_lines(line, repeated_line)}; {difference}"


def changed_arguments(function: str, recorded: bytes, line: str, repeated: bytes, repeated_line: str) -> str:
    """Describes a call of a function by `recorded` with other arguments than in the recording.

    Args:
        recorded, repeated: the arguments as JSON.
        line, repeated_line: lines of the app that make the calls.
    """
    difference = first_difference(recorded, repeated)
    return f"the arguments of {function} differ from the recorded ones: {_lines(line, repeated_line)}; {difference}"


def changed_result(name: str, recorded: bytes, repeated: bytes) -> str:
    """Describes a response or yielded value that differs from the recorded one.

    Args:
        name: names what differs, such as "the response".
        recorded, repeated: both as JSON, or empty for a stream.
    """
    difference = first_difference(recorded, repeated) if recorded and repeated else "a stream is another one"
    return f"{name} differs from the recorded one: {difference or 'its JSON is another one'}"


def changed_end(recorded: str, repeated: str) -> str:
    """Describes a run that does not end like the one that it repeats.

    Args:
        recorded: the end of the recorded run, such as "waited for `text` of invocation 3".
        repeated: the end of this run.
    """
    return f"it {recorded} in the recording, and {repeated} now"


def _lines(line: str, repeated_line: str) -> str:
    return f"{line} called it in the recording, {repeated_line} now"


def first_difference(recorded: bytes, repeated: bytes) -> str:
    """Returns where two values, given as JSON, differ first, and both values. Empty if they are equal."""
    return _difference(json.loads(recorded), json.loads(repeated), "")


def _difference(recorded: Any, repeated: Any, path: str) -> str:
    if recorded == repeated:
        return ""
    place = f"`{path}`" if path else "it"
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
        return f"{place} has {len(recorded)} elements in the recording, and {len(repeated)} now"
    return f"{place} is {_quoted(recorded)} in the recording, and {_quoted(repeated)} now"


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"

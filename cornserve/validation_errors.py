"""Messages for pydantic's errors, without its prefixes and class names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_VALUE_CHARACTERS = 80
"""Longer values are cut."""

_CUSTOM = {"value_error", "assertion_error"}
"""The types of errors that Cornserve's own validators raise. Their messages quote the value where it helps."""

_COMPLETE = {
    "extra_forbidden": "is not a known field: remove it or correct its name",
    "missing": "is required: add it",
}
"""The messages of other types of errors."""

_OBJECT = re.compile(r"a valid dictionary( or instance of \w+)?|an instance of \w+")
_DETAIL = re.compile(r", (unable to|got) .*| after validation")


def describe_error(error: Mapping[str, Any]) -> str:
    """Returns the problem and the given value: "must be less than or equal to 64, not 100".

    `error` is one element of `ValidationError.errors()`, possibly without its input. Objects and lists, which may be a
    whole body, are not quoted.
    """
    if error["type"] in _COMPLETE:
        return _COMPLETE[error["type"]]
    message = re.sub(r"^(Value error|Assertion failed), ", "", error["msg"])
    if error["type"] in _CUSTOM:
        return message
    message = _OBJECT.sub("an object", _DETAIL.sub("", re.sub(r"^\w+ should ", "must ", message)))
    message = message.replace("True", "true").replace("False", "false")
    # pydantic itself adds the number of elements.
    if "input" not in error or isinstance(error["input"], dict | list | tuple):
        return message
    return f"{message}, not {_quote(error['input'])}"


def describe_all(errors: Iterable[Mapping[str, Any]]) -> str:
    """Returns all errors in one line, each with its field."""
    located = ((".".join(map(str, error["loc"])), describe_error(error)) for error in errors)
    return "; ".join(f"{field}: {problem}" if field else problem for field, problem in located)


def _quote(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else "null" if value is None else repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[: MAX_VALUE_CHARACTERS - 1]}…"

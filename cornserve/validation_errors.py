"""Messages for pydantic's errors, without its prefixes and class names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from json import JSONDecoder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ValidationError

MAX_VALUE_CHARACTERS = 80
"""Longer values are cut."""

MANY_PROBLEMS = 100

MAX_FURTHER_FIELDS = 3
"""The number of further fields that an error names."""

_CUSTOM = {"value_error", "assertion_error"}
"""The types of errors that Cornserve's own validators raise. Their messages quote the value where it helps."""

_COMPLETE = {
    "extra_forbidden": "is not a known field: remove it or correct its name",
    "missing": "is required: add it",
}
"""The messages of other types of errors."""

_PATH = re.compile(
    r"(?:Value error|Assertion failed), (?P<field>[\w$]+(?:\[\])?)(?P<rest>(?:\.[\w$]+|\[\d+\])*): "
    r"(?P<missing>missing\b)?"
)
"""The path of a field at the start of a message of a validator."""

_PARTS = re.compile(r"[\w$]+")

_UNION = re.compile(r"^invalid \w+ type(?=: use)")
"""The start of the message for an object whose type is not among those of a union."""

_OBJECT = re.compile(r"a valid dictionary( or instance of \w+)?|an instance of \w+")
_DETAIL = re.compile(r", (unable to|got) .*| after validation")


def field_path(location: Sequence[str | int]) -> str:
    """Returns the path of a field, such as `messages[0].content`."""
    # A tag of a union, which is not part of the body, has a colon.
    parts = [part for part in location if ":" not in str(part)]
    joined = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return joined.removeprefix(".")


def first_problems(error: ValidationError) -> list[Mapping[str, Any]]:
    """Returns pydantic's errors. If there are more than `MANY_PROBLEMS`, only the first one, without its input."""
    if error.error_count() <= MANY_PROBLEMS:
        return [*error.errors(include_url=False, include_context=False)]
    # Writing JSON and parsing its first element takes a tenth of the time in which pydantic creates all dictionaries.
    problems = error.json(include_url=False, include_context=False, include_input=False)
    first, _ = JSONDecoder().raw_decode(problems, 1)
    return [{**first, "loc": (*first["loc"],)}]


def further_fields(errors: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the first `MAX_FURTHER_FIELDS` paths of the fields of these elements of `ValidationError.errors()`."""
    located = (field_path(locate_error(error)["loc"]) for error in islice(errors, MAX_FURTHER_FIELDS))
    return list(dict.fromkeys(filter(None, located)))


def locate_error(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the error of a whole object as that of the field with which its message begins.

    `error` is one element of `ValidationError.errors()`, with its input. The message begins with the path of a field
    that the object has (`top_logprobs: 2 needs logprobs: true`) or that it lacks (`content: missing in a message`).
    """
    found = _PATH.match(error["msg"]) if error["type"] in _CUSTOM and isinstance(error.get("input"), dict) else None
    if found is None or not (found["missing"] or found["field"] in error["input"]):
        return error
    path = [int(part) if part.isdecimal() else part for part in (found["field"], *_PARTS.findall(found["rest"]))]
    return {**error, "loc": (*error["loc"], *path), "msg": error["msg"][found.end("rest") + 2 :]}


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
    if (given := error.get("input")) and isinstance(given, dict) and isinstance(given.get("type"), str):
        message = _UNION.sub(lambda found: f"{found[0]} {_quote(given['type'])}", message, count=1)
    message = _OBJECT.sub("an object", _DETAIL.sub("", re.sub(r"^\w+ should ", "must ", message)))
    message = message.replace("True", "true").replace("False", "false")
    # pydantic itself adds the number of elements.
    if "input" not in error or isinstance(given, dict | list | tuple):
        return message
    if error["type"].endswith("_type") and isinstance(given, str) and len(given) > MAX_VALUE_CHARACTERS:
        return f"{message}, not a text of {len(given)} characters"  # Such as the base64 of a medium.
    return f"{message}, not {_quote(given)}"


def describe_all(errors: Iterable[Mapping[str, Any]]) -> str:
    """Returns all errors in one line, each with its field."""
    located = ((".".join(map(str, error["loc"])), describe_error(error)) for error in errors)
    return "; ".join(f"{field}: {problem}" if field else problem for field, problem in located)


def _quote(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else "null" if value is None else repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[: MAX_VALUE_CHARACTERS - 1]}…"

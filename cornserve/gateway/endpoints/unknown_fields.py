"""Serves requests with fields that Cornserve does not know: with null, or if the gateway is set to ignore them
(`--unknown-fields warn`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import ValidationError
from starlette.types import Scope

from cornserve.validation_errors import MANY_PROBLEMS

HEADER = "x-cornserve-unknown-fields"

_SCOPE_KEY = "cornserve.unknown_fields"
_MAX_HEADER_CHARACTERS = 1000

MAX_ROUNDS = 16
"""The number of times that a body is validated. Large ones take a second each time, in which the gateway waits."""

Body = TypeVar("Body")


class _Place(NamedTuple):
    """The place of an object in a body."""

    keys: Sequence[str | int]
    kind: tuple[Any, Any]


def ignore_unknown_fields(scope: Scope) -> None:
    """Lets `validate_known` ignore unknown fields of this request."""
    scope[_SCOPE_KEY] = []


def unknown_fields_header(scope: Scope) -> dict[str, str]:
    """Returns the header that names the fields that were ignored, or no header."""
    ignored: list[str] | None = scope.get(_SCOPE_KEY)
    if not ignored:
        return {}
    names = ", ".join(quote(name, safe="[]._-") for name in ignored)
    return {HEADER: names[:_MAX_HEADER_CHARACTERS]}


def validate_known(scope: Scope, fields: Any, validate: Callable[[Any], Body]) -> Body:
    """Returns the body of these fields. Removes unknown ones from `fields` if they are null, as those that clients
    return with items of a response, or if the request ignores them.

    Raises:
        ValidationError: a field is not valid, or is unknown and not ignored.
    """
    ignored: list[str] | None = scope.get(_SCOPE_KEY)
    for _ in range(MAX_ROUNDS):  # Some lists are validated until their first error.
        try:
            return validate(fields)
        except ValidationError as error:
            if error.error_count() > MANY_PROBLEMS:
                raise
            removed = _remove_unknown(fields, error, only_null=ignored is None)
            if ignored is not None:
                ignored += removed
            if not removed or len(ignored or ()) > MANY_PROBLEMS:
                raise
    return validate(fields)


def _remove_unknown(fields: Any, error: ValidationError, *, only_null: bool) -> list[str]:
    """Removes the unknown fields that the error names, and the same fields of other elements of their lists. Returns
    their paths.

    Args:
        only_null: whether fields with a value are kept.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    removed: list[str] = []
    for problem in problems:
        if problem["type"] == "extra_forbidden":
            *parents, name = problem["loc"]
            removed += _remove(fields, name, _find(fields, parents), only_null)
    return removed


def _find(fields: Any, location: Sequence[Any]) -> _Place:
    """Returns the place of an object, without the parts of its location that are tags of unions."""
    keys: list[str | int] = []
    for part in location:
        if (isinstance(fields, dict) and part in fields) or (isinstance(fields, list) and isinstance(part, int)):
            fields = fields[part]
            keys.append(part)
    return _Place(keys, _kind(fields))


def _remove(fields: Any, name: Any, place: _Place, only_null: bool, path: str = "", depth: int = 0) -> list[str]:
    """Removes a field of the object at a place, and of objects of its kind at this place in other elements of lists.
    Returns their paths."""
    if depth == len(place.keys):
        if not isinstance(fields, dict) or name not in fields or _kind(fields) != place.kind:
            return []
        if only_null and fields[name] is not None:
            return []
        del fields[name]
        return [f"{path}.{name}".removeprefix(".")]
    key = place.keys[depth]
    if isinstance(key, int) and isinstance(fields, list):
        elements = [(f"{path}[{index}]", element) for index, element in enumerate(fields)]
    else:
        elements = [(f"{path}.{key}", fields[key])] if isinstance(fields, dict) and key in fields else []
    return [found for at, element in elements for found in _remove(element, name, place, only_null, at, depth + 1)]


def _kind(fields: Any) -> tuple[Any, Any]:
    """Returns the fields that select the type of an object in a union."""
    return (fields.get("type"), fields.get("role")) if isinstance(fields, dict) else (None, None)

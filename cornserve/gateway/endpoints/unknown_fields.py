"""Serves requests with fields that Cornserve does not know, if the gateway is set to: `--unknown-fields warn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import ValidationError
from starlette.types import Scope

from cornserve.gateway.errors import MANY_PROBLEMS

HEADER = "x-cornserve-unknown-fields"

_SCOPE_KEY = "cornserve.unknown_fields"
_MAX_HEADER_CHARACTERS = 1000

Body = TypeVar("Body")


def ignore_unknown_fields(scope: Scope) -> None:
    """Lets `validate_known` ignore unknown fields of this request."""
    scope[_SCOPE_KEY] = []


def unknown_fields_header(scope: Scope) -> dict[str, str]:
    """Returns the header that names the fields that were ignored, or no header."""
    ignored: list[str] = scope.get(_SCOPE_KEY, [])
    names = ", ".join(quote(name, safe="[]._-") for name in ignored)
    return {HEADER: names[:_MAX_HEADER_CHARACTERS]} if names else {}


def validate_known(scope: Scope, fields: Any, validate: Callable[[Any], Body]) -> Body:
    """Returns the body of these fields. Removes unknown ones from `fields` if the request ignores them.

    Raises:
        ValidationError: a field is not valid, or is unknown and not ignored.
    """
    ignored: list[str] | None = scope.get(_SCOPE_KEY)
    while True:  # Some lists are validated until their first error.
        try:
            return validate(fields)
        except ValidationError as error:
            if ignored is None or len(ignored) + error.error_count() > MANY_PROBLEMS:
                raise
            removed = _remove_unknown(fields, error)
            if not removed:
                raise
            ignored += removed


def _remove_unknown(fields: Any, error: ValidationError) -> list[str]:
    """Removes the unknown fields that the error names. Returns their paths."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    locations = [problem["loc"] for problem in problems if problem["type"] == "extra_forbidden"]
    return [path for location in locations if (path := _remove(fields, location)) is not None]


def _remove(fields: Any, location: Sequence[Any]) -> str | None:
    """Removes a field. Returns its path, without the parts of its location that are tags of unions, or None if it is
    not found."""
    path = ""
    *parents, name = location
    for part in parents:
        if isinstance(fields, dict) and part in fields:
            path += f"{part}."
        elif isinstance(fields, list) and isinstance(part, int):
            path = f"{path.removesuffix('.')}[{part}]."
        else:
            continue
        fields = fields[part]
    if not isinstance(fields, dict) or name not in fields:
        return None
    del fields[name]
    return f"{path}{name}"

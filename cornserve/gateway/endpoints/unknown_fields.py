"""Serves requests with fields that Cornserve does not know: with null, or if the gateway is set to ignore them
(`--unknown-fields warn`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from cornserve.validation_errors import MANY_PROBLEMS

HEADER = "x-cornserve-unknown-fields"

_SCOPE_KEY = "cornserve.unknown_fields"
_MAX_HEADER_CHARACTERS = 1000

MAX_REMOVALS = 16
"""The maximum number of steps that remove fields. Some lists are validated until their first error."""

Body = TypeVar("Body", bound=BaseModel)

_Keys = tuple[str | None, ...]
"""The keys from a body to an object. None: each element of a list."""

_Kind = tuple[str | None, str | None]
"""The values of the fields that select the type of an object in a union."""


def ignore_unknown_fields(scope: Scope) -> None:
    """Lets `BodyValidation` ignore unknown fields of this request."""
    scope[_SCOPE_KEY] = []


def unknown_fields_header(scope: Scope) -> dict[str, str]:
    """Returns the header that names the fields that were ignored, or no header."""
    ignored: list[str] | None = scope.get(_SCOPE_KEY)
    if not ignored:
        return {}
    names = ", ".join(quote(name, safe="[]._-") for name in ignored)
    return {HEADER: names[:_MAX_HEADER_CHARACTERS]}


class BodyValidation(Generic[Body]):
    """Validates the body of a request in steps. Each step but the last removes unknown fields from `fields`.

    Unknown fields are removed if they are null, as those that clients return with items of a response, or if the
    request ignores them.
    """

    def __init__(self, scope: Scope, fields: Any, body_type: type[Body]) -> None:
        self._fields = fields
        if type(fields) is dict:  # OpenAI's clients send null for omitted fields.
            self._fields = {name: value for name, value in fields.items() if value is not None}
        self._body_type = body_type
        self._ignored: list[str] | None = scope.get(_SCOPE_KEY)
        self._steps = 0

    def body(self) -> Body:
        """Returns the body after all steps. Raises a `ValidationError` like `step`."""
        while (body := self.step()) is None:
            pass
        return body

    def step(self) -> Body | None:
        """Returns the body, or None if another step is needed.

        Raises:
            ValidationError: a field is not valid, or is unknown and not ignored.
        """
        self._steps += 1
        try:
            return self._body_type.model_validate(self._fields)
        except ValidationError as error:
            if self._steps > MAX_REMOVALS or error.error_count() > MANY_PROBLEMS:
                raise
            removed = _remove_unknown(self._fields, error, only_null=self._ignored is None)
            if self._ignored is not None:
                self._ignored += removed
            if not removed or len(self._ignored or ()) > MANY_PROBLEMS:
                raise
            return None


def _remove_unknown(fields: Any, error: ValidationError, *, only_null: bool) -> list[str]:
    """Removes the unknown fields that the error names, and the same fields of other elements of their lists. Returns
    their paths.

    Args:
        only_null: whether fields with a value are kept.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    unknown: dict[_Keys, dict[_Kind, dict[str, None]]] = {}
    for problem in problems:
        if problem["type"] == "extra_forbidden":
            *parents, name = problem["loc"]
            keys, kind = _find(fields, parents)
            unknown.setdefault(keys, {}).setdefault(kind, {})[str(name)] = None
    return [path for keys, names in unknown.items() for path in _remove(fields, keys, names, only_null)]


def _find(fields: Any, location: Sequence[Any]) -> tuple[_Keys, _Kind]:
    """Returns the keys and the kind of an object, without the parts of its location that are tags of unions."""
    keys: list[str | None] = []
    for part in location:
        if isinstance(fields, list) and isinstance(part, int):
            fields = fields[part]
            keys.append(None)
        elif isinstance(fields, dict) and part in fields:
            fields = fields[part]
            keys.append(part)
    return tuple(keys), _kind(fields)


def _remove(
    fields: Any, keys: _Keys, names: Mapping[_Kind, Iterable[str]], only_null: bool, path: str = "", depth: int = 0
) -> Iterator[str]:
    """Removes fields, by the kind of the object, of all objects with these keys. Yields their paths."""
    if depth == len(keys):
        for name in names.get(_kind(fields), ()):
            if isinstance(fields, dict) and name in fields and not (only_null and fields[name] is not None):
                del fields[name]
                yield f"{path}.{name}".removeprefix(".")
        return
    key = keys[depth]
    if key is None and isinstance(fields, list):
        for index, element in enumerate(fields):
            yield from _remove(element, keys, names, only_null, f"{path}[{index}]", depth + 1)
    elif key is not None and isinstance(fields, dict) and key in fields:
        yield from _remove(fields[key], keys, names, only_null, f"{path}.{key}", depth + 1)


def _kind(fields: Any) -> _Kind:
    given = (fields.get("type"), fields.get("role")) if isinstance(fields, dict) else (None, None)
    type, role = (value if isinstance(value, str) else None for value in given)
    return type, role

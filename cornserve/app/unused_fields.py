"""Rejects requests with fields that the app ignores, so that clients do not rely on them.

OpenAI's API has more fields than most tasks use. A task therefore receives a request that tracks which of its fields
are read. Handing the request to a unit task, copying it or dumping it counts as reading all fields (see
`cornserve.task.lazy_model`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from cornserve.task.base import Task
from cornserve.task.errors import TaskError
from cornserve.task.lazy_model import lazy_subclass

Model = TypeVar("Model", bound=BaseModel)

ALL_FIELDS = "__dict__"

_REQUIRED = object()
"""Stands for the default of a required field."""

_ALL_READ = frozenset({ALL_FIELDS})

_WITHOUT_EFFECT = {"reasoning_effort": "none"}
"""Values that ask a task for nothing: one that does not use the field has no reasoning."""


class UnusedFieldsError(TaskError):
    """The request has fields that the task has not read."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = sorted(fields)
        names = ", ".join(map(repr, self.fields))
        pronoun = "them" if len(fields) > 1 else "it"
        super().__init__(f"this app makes no use of {names}: remove {pronoun} from the request")


def tracked(model: type[Model], source: BaseModel, optional_fields: Iterable[str] = (), /, **changes: object) -> Model:
    """Returns a `model` that tracks reads of its fields.

    The fields have the values of `source`, which has all fields of `model` and may have more, except for `changes`.

    Args:
        optional_fields: fields that the task need not read, because an API requires them.
    """
    request: Model = object.__new__(_tracked_type(model))
    set_attribute = object.__setattr__
    set_attribute(request, "_read", set())
    set_attribute(request, "_optional", frozenset(optional_fields))
    set_attribute(request, "_values", source.__dict__ | changes if changes else source.__dict__)
    fields_set = source.__pydantic_fields_set__ | changes.keys() if changes else source.__pydantic_fields_set__
    set_attribute(request, "__pydantic_fields_set__", fields_set & _defaults(model).keys())
    return request


def optional_fields_of(request: object) -> frozenset[str]:
    """Returns the fields of a request that the task need not read."""
    found: frozenset[str] = getattr(request, "_optional", frozenset())
    return found


def invoke_rejecting_unused(path: Task[Any, Any], request: Any) -> Any:
    """Returns the path's response. Raises `UnusedFieldsError` for fields of a tracked request that it has not read."""
    response = path.respond(request)
    read = getattr(request, "_read", _ALL_READ)
    used = read | optional_fields_of(request)
    if ALL_FIELDS not in used and (unused := _non_default(request, request.__pydantic_fields_set__ - used)):
        raise UnusedFieldsError(list(unused))
    return response


@contextmanager
def untracked(request: object) -> Iterator[None]:
    """Does not count the fields of a tracked request that are read meanwhile."""
    read: set[str] | None = getattr(request, "_read", None)
    before = None if read is None else {*read}
    try:
        yield
    finally:
        if read is not None and before is not None:
            read.intersection_update(before)


def _non_default(request: Any, fields: set[str]) -> set[str]:
    """Returns the optional fields among `fields` with another value than their default, or than one without effect."""
    model: type[BaseModel] = type(request)
    values, defaults = request._values, _defaults(model)
    without_effect = _WITHOUT_EFFECT.items()
    changed = {name for name in fields if defaults[name] not in (_REQUIRED, values[name])}
    return {name for name in changed if (name, values[name]) not in without_effect}


@cache
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    fields = model.model_fields.items()
    return {
        name: _REQUIRED if field.is_required() else field.get_default(call_default_factory=True)
        for name, field in fields
    }


@cache
def _tracked_type(model: type[Model]) -> type[Model]:
    def all_fields(self: Any) -> dict[str, Any]:
        self._read.add(ALL_FIELDS)
        return {name: self._values[name] for name in _defaults(model)}

    def __copy__(self: Model) -> Model:
        return model.model_construct(set(self.model_fields_set), **vars(self))

    return lazy_subclass(
        model,
        fields={name: _tracked_field(name) for name in _defaults(model)},
        all_fields=all_fields,
        slots=["_read", "_optional", "_values"],
        attributes={
            "__copy__": __copy__,
            "__deepcopy__": lambda self, memo=None: __copy__(self).__deepcopy__(memo),
        },
    )


def _tracked_field(name: str) -> property:
    def read(self: Any) -> Any:
        self._read.add(name)
        return self._values[name]

    return property(read)

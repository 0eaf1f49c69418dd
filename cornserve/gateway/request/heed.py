"""Which fields of a request its task heeds: whoever sets another one must not believe that it has an effect.

OpenAI's calls have more fields than most tasks make use of. So a task is given a request that notes what is read of it.
Reading `__dict__` or its like counts as reading everything, because that is how pydantic gets at a model's values: when
it is handed on to a unit task, copied or dumped.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from cornserve.gateway.errors import ApiError
from cornserve.task.base import Task

Model = TypeVar("Model", bound=BaseModel)

EVERYTHING = "__dict__"

_ALL = frozenset({EVERYTHING})
"""Is read of a request that is not watched."""


def watched(model: type[Model], given: BaseModel, **changes: object) -> Model:
    """A request of the fields that `model` has of what is `given`, which is one and may have more, and of `changes`."""
    watched_type, names = _watched_type(model)
    values = given.__dict__
    request: Model = object.__new__(watched_type)
    put = object.__setattr__
    put(request, "__dict__", {name: values[name] for name in names} | changes)
    put(request, "__pydantic_fields_set__", given.__pydantic_fields_set__ & names)
    put(request, "__pydantic_extra__", None)
    put(request, "__pydantic_private__", None)
    put(request, "_read", set())
    return request


def heeding(path: Task[Any, Any], request: Any) -> Any:
    """The path's response. Raises a 400 that names the fields of a watched request that it had no use for."""
    response = path.invoke(request)
    read = getattr(request, "_read", _ALL)
    if EVERYTHING not in read and (unheeded := _chosen(request, request.__pydantic_fields_set__ - read)):
        names = ", ".join(map(repr, unheeded))
        raise ApiError(400, f"this app makes no use of {names}", param=unheeded[0], code="unused_field")
    return response


def _chosen(request: BaseModel, names: Set[str]) -> list[str]:
    """Those of these fields that the client need not have given, and has given another value than their default."""
    fields = type(request).model_fields
    return [
        name
        for name in sorted(names)
        if not fields[name].is_required()
        and object.__getattribute__(request, name) != fields[name].get_default(call_default_factory=True)
    ]


@cache
def _watched_type(model: type[Model]) -> tuple[type[Model], frozenset[str]]:
    """And the names of its fields."""
    fields = frozenset(model.model_fields)

    def __getattribute__(self: Model, name: str) -> Any:
        if name in fields or name == EVERYTHING:
            object.__getattribute__(self, "_read").add(name)
        return object.__getattribute__(self, name)

    def __copy__(self: Model) -> Model:
        return model.model_construct(set(self.model_fields_set), **vars(self))

    namespace = {
        "__slots__": ("_read",),
        "__module__": model.__module__,
        "__getattribute__": __getattribute__,
        "__copy__": __copy__,
    }
    metaclass: Any = type(model)
    watched_type: type[Model] = metaclass(model.__name__, (model,), namespace)
    return watched_type, fields

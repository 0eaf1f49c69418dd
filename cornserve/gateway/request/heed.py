"""Which fields of a request its task heeds: whoever sets another one must not believe that it has an effect.

OpenAI's calls have more fields than most tasks make use of. So a task is given a request that notes what is read of it.
Reading `__dict__` or its like counts as reading everything, because that is how pydantic gets at a model's values: when
it is handed on to a unit task, copied or dumped.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from cornserve.gateway.errors import ApiError
from cornserve.task.base import Task

Model = TypeVar("Model", bound=BaseModel)

EVERYTHING = "__dict__"

_NONE = object()
"""Of a field that has to be given."""

_ALL = frozenset({EVERYTHING})
"""Is read of a request that is not watched."""


def watched(model: type[Model], given: BaseModel, **changes: object) -> Model:
    """A request of the fields that `model` has of what is `given`, which is one and may have more, and of `changes`."""
    request: Model = object.__new__(_watched_type(model))
    values = object.__getattribute__(request, "__dict__")
    values.update(given.__dict__)
    for name in _others(type(given), model):
        del values[name]
    values.update(changes)
    object.__setattr__(request, "__pydantic_fields_set__", given.__pydantic_fields_set__ & _fields(model).keys())
    object.__setattr__(request, "_read", set())
    return request


def heeding(path: Task[Any, Any], request: Any) -> Any:
    """The path's response. Raises a 400 that names the fields of a watched request that it had no use for."""
    response = path.invoke(request)
    read = getattr(request, "_read", _ALL)
    if EVERYTHING not in read and (unheeded := _chosen(request) - read):
        names = ", ".join(map(repr, sorted(unheeded)))
        raise ApiError(400, f"this app makes no use of {names}", param=min(unheeded), code="unused_field")
    return response


def _chosen(request: BaseModel) -> set[str]:
    """The fields that the client need not have given, and has given another value than their default."""
    values, defaults = object.__getattribute__(request, "__dict__"), _fields(type(request))
    return {name for name in request.__pydantic_fields_set__ if defaults[name] not in (_NONE, values[name])}


@cache
def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The names of its fields, with their defaults."""
    fields = model.model_fields.items()
    return {name: _NONE if it.is_required() else it.get_default(call_default_factory=True) for name, it in fields}


@cache
def _others(given: type[BaseModel], model: type[BaseModel]) -> frozenset[str]:
    """The fields that only the first of the two has."""
    return frozenset(given.model_fields) - frozenset(model.model_fields)


@cache
def _watched_type(model: type[Model]) -> type[Model]:
    fields = _fields(model).keys()

    def __getattribute__(self: Model, name: str) -> Any:
        if name in fields or name == EVERYTHING:
            object.__getattribute__(self, "_read").add(name)
        return object.__getattribute__(self, name)

    def __copy__(self: Model) -> Model:
        return model.model_construct(set(self.model_fields_set), **vars(self))

    namespace = {
        "__slots__": ("_read",),
        "__pydantic_extra__": None,
        "__pydantic_private__": None,
        "__module__": model.__module__,
        "__getattribute__": __getattribute__,
        "__copy__": __copy__,
    }
    metaclass: Any = type(model)
    watched_type: type[Model] = metaclass(model.__name__, (model,), namespace)
    return watched_type

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
    put = object.__setattr__
    put(request, "_read", set())
    put(request, "_values", given.__dict__ | changes if changes else given.__dict__)  # which nobody writes
    put(request, "__pydantic_fields_set__", given.__pydantic_fields_set__ & _fields(model).keys())
    return request


def heeding(path: Task[Any, Any], request: Any) -> Any:
    """The path's response. Raises a 400 that names the fields of a watched request that it had no use for."""
    response = path.invoke(request)
    read = getattr(request, "_read", _ALL)
    if EVERYTHING not in read and (unheeded := _chosen(request, request.__pydantic_fields_set__ - read)):
        names = ", ".join(map(repr, sorted(unheeded)))
        raise ApiError(400, f"this app makes no use of {names}", param=min(unheeded), code="unused_field")
    return response


def _chosen(request: Any, given: set[str]) -> set[str]:
    """Of the fields that are given, those that need not have been, and have another value than their default."""
    model: type[BaseModel] = type(request)
    values, defaults = request._values, _fields(model)
    return {name for name in given if defaults[name] not in (_NONE, values[name])}


@cache
def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The names of its fields, with their defaults."""
    fields = model.model_fields.items()
    return {name: _NONE if it.is_required() else it.get_default(call_default_factory=True) for name, it in fields}


@cache
def _watched_type(model: type[Model]) -> type[Model]:
    """Its fields are properties over `_values`, and so is `__dict__`: with a real one, pydantic would read the values
    unnoticed."""

    def everything(self: Any) -> dict[str, Any]:
        self._read.add(EVERYTHING)
        return {name: self._values[name] for name in _fields(model)}

    def __copy__(self: Model) -> Model:
        return model.model_construct(set(self.model_fields_set), **vars(self))

    namespace = {
        "__slots__": ("_read", "_values"),
        "__module__": model.__module__,
        "__dict__": property(everything),
        "__copy__": __copy__,
        "__deepcopy__": lambda self, memo=None: __copy__(self).__deepcopy__(memo),
        "__pydantic_extra__": None,
        "__pydantic_private__": None,
    }
    metaclass: Any = type(model)
    watched_type: type[Model] = metaclass(model.__name__, (model,), namespace)
    for name in _fields(model):
        type.__setattr__(watched_type, name, _noted(name))
    return watched_type


def _noted(name: str) -> property:
    """A field whose reading is noted."""

    def read(self: Any) -> Any:
        self._read.add(name)
        return self._values[name]

    return property(read)

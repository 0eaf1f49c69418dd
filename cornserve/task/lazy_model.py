"""Pydantic models whose fields are computed when they are read.

`vars(model)` counts as a read of all fields, because pydantic itself and the standard library read a model through its
`__dict__`: in `model_dump`, `==`, `repr` and copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

stored_fields: Callable[[BaseModel], dict[str, Any]] = vars(BaseModel)["__dict__"].__get__
"""Returns the instance's real `__dict__`, even if the class of a lazy model replaces `__dict__` with a property."""


def is_lazy(model: BaseModel) -> bool:
    """Returns whether fields of the model are computed when they are read."""
    return isinstance(vars(type(model)).get("__dict__"), property)


def lazy_subclass(
    model: type[Model],
    *,
    fields: Mapping[str, property],
    all_fields: Callable[[Any], dict[str, Any]],
    slots: Sequence[str],
    attributes: Mapping[str, Any],
) -> type[Model]:
    """Returns a subclass of `model` with the same name, whose instances `object.__new__` creates without validation.

    Args:
        fields: the properties that replace fields of `model`. Other fields are read from `stored_fields`.
        all_fields: the getter of `__dict__`.
        slots: names of the instance attributes on which the properties depend.
        attributes: further attributes of the class.
    """
    namespace = {
        "__slots__": tuple(slots),
        "__module__": model.__module__,
        "__dict__": property(all_fields),
        # pydantic's BaseModel uses both to determine the missing attributes.
        "__pydantic_extra__": None,
        "__pydantic_private__": None,
        **attributes,
    }
    metaclass: Any = type(model)
    subclass: type[Model] = metaclass(model.__name__, (model,), namespace)
    for name, field in fields.items():  # pydantic does not accept properties in the namespace.
        type.__setattr__(subclass, name, field)
    return subclass

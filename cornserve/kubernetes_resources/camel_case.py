"""Variants of pydantic models whose JSON has field names in camelCase, as all Kubernetes APIs have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import copy
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from cornserve.kubernetes.resources import JsonObject

Model = TypeVar("Model", bound=BaseModel)


class _CamelCase(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)  # type: ignore[pydantic-alias]


@cache
def camel_case(model: type[BaseModel]) -> type[BaseModel]:
    """Returns a subclass of the model, with the same fields, which reads and writes camelCase names at every level."""
    fields: dict[str, Any] = {
        name: (_replaced(field.annotation), _with_variant_default(field)) for name, field in model.model_fields.items()
    }
    return create_model(model.__name__, __base__=(model, _CamelCase), __doc__=model.__doc__, **fields)


def to_json(value: BaseModel) -> JsonObject:
    """Returns the JSON of a model with camelCase names. Fields that have their default are left out."""
    return _variant(value).model_dump(mode="json", exclude_defaults=True)


def from_json(model: type[Model], value: JsonObject) -> Model:
    """Returns the model for JSON with camelCase names.

    Raises `ValidationError`, with camelCase names except in errors of rules.
    """
    return model.model_validate(camel_case(model).model_validate(value).model_dump(by_alias=False))


def _variant(value: BaseModel) -> BaseModel:
    return camel_case(type(value)).model_validate(value.model_dump(), by_name=True)


def _with_variant_default(field: FieldInfo) -> FieldInfo:
    """Returns the field with the camelCase variant of a default that is a model."""
    if not isinstance(field.default, BaseModel):
        return field
    changed = copy(field)
    changed.default = _variant(field.default)
    return changed


def _replaced(annotation: Any) -> Any:
    """Replaces the models in a type by their camelCase variants."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return camel_case(annotation)
    arguments = tuple(_replaced(argument) for argument in get_args(annotation))
    match get_origin(annotation):
        case None:
            return annotation
        case origin if origin in (Union, UnionType):
            return Union[arguments]  # noqa: UP007  # the arguments are known at run time only
        case origin if origin is Annotated:
            return Annotated[arguments]
        case origin if origin in (list, tuple, dict, Mapping):
            return origin[arguments]
        case _:
            return annotation

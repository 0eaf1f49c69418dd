"""Rules across the fields of a spec. Models check them in Python, and the API server checks them in CEL."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import InitErrorDetails


class SpecRule(NamedTuple):
    """A rule of a model, in two languages."""

    holds: Callable[[Any], bool]
    """Whether the rule holds for an object of the model."""
    cel: str
    """The same condition in the Common Expression Language, with names in camelCase."""
    message: str
    """The correction, for users, with names in snake_case."""
    field: str = ""
    """The path of the field that errors name, from the model that has the rule."""

    def error(self, value: object) -> InitErrorDetails:
        """Returns the error of an object for which the rule does not hold, at the field."""
        location = tuple(self.field.split(".")) if self.field else ()
        return {"type": "value_error", "loc": location, "input": value, "ctx": {"error": ValueError(self.message)}}

    @property
    def validation(self) -> JsonDict:
        """The rule as an item of `x-kubernetes-validations`."""
        validation: JsonDict = {"rule": self.cel, "message": _camel_case(self.message)}
        return {**validation, "fieldPath": f".{_camel_case(self.field)}"} if self.field else validation


def exactly_one(*names: str) -> SpecRule:
    """Returns the rule that exactly one of the fields of an object is set."""
    given = ", ".join(f"has(self.{to_camel(name)})" for name in names)
    return SpecRule(
        lambda value: sum(getattr(value, name) is not None for name in names) == 1,
        f"[{given}].filter(is_set, is_set).size() == 1",
        f"set exactly one of {', '.join(names)}",
    )


class SpecModel(BaseModel):
    """A part of a spec. It is immutable, has no unknown fields, and keeps its rules."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rules: ClassVar[tuple[SpecRule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        errors = [rule.error(self) for rule in self.rules if not rule.holds(self)]
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


def _camel_case(text: str) -> str:
    return re.sub(r"[a-z]+(_[a-z]+)+", lambda name: to_camel(name[0]), text)

"""Validation rules in the Common Expression Language, which the API server evaluates."""

from __future__ import annotations

from pydantic.config import JsonDict


def rule(expression: str, message: str, *, field: str = "") -> JsonDict:
    """Returns a rule. `field` is the path, from the schema that has the rule, of the field that errors name."""
    validation: JsonDict = {"rule": expression, "message": message}
    return {**validation, "fieldPath": field} if field else validation


def exactly_one(*names: str) -> JsonDict:
    """Returns the rule that exactly one of the fields of an object is set."""
    given = ", ".join(f"has(self.{name})" for name in names)
    return rule(f"[{given}].filter(is_set, is_set).size() == 1", f"set exactly one of {', '.join(names)}")


def rules(*validations: JsonDict) -> JsonDict:
    """Returns the extension of a schema with the rules."""
    return {"x-kubernetes-validations": list(validations)}

"""Conversion between `App.spec`, which has names in camelCase, and the spec of the stored record."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

from pydantic import JsonValue, ValidationError

from cornserve.app.spec import AppSpec
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.camel_case import from_json, to_json
from cornserve.validation_errors import describe_all


class AppResourceError(ValueError):
    """A spec or a status cannot be converted. The message is for users."""


def decode_spec(spec: JsonObject) -> AppSpec:
    """Returns the record's spec for `App.spec`.

    Raises `AppResourceError` if the resource has fields that this version of Cornserve does not know, or that the
    CRD of another version has admitted.
    """
    try:
        return from_json(AppSpec, spec)
    except ValidationError as error:
        raise AppResourceError(f"spec: {describe_all(error.errors())}") from error


def encode_spec(spec: AppSpec, current: JsonObject | None = None) -> JsonObject:
    """Returns `App.spec`. Fields of the `current` spec keep their form if their meaning is unchanged.

    Raises `AppResourceError` if the API cannot represent the spec, such as numbers with too many digits.
    """
    _check_numbers(spec)
    new = to_json(spec)
    new["replicas"] = spec.replicas
    if current is None:
        return new
    unchanged = to_json(decode_spec(current))
    kept = {name: value for name, value in current.items() if new.get(name) == unchanged.get(name)}
    return {name: kept.get(name, value) for name, value in new.items()} | kept


def _check_numbers(spec: AppSpec) -> None:
    values: dict[str, JsonValue] = {}
    for override in spec.executors:
        values[f"executors.{override.name}.options"] = override.options
        values[f"executors.{override.name}.podTemplate"] = override.pod_template
    if spec.planning is not None:
        values["planning.profile"] = spec.planning.profile
    if spec.measured is not None:
        values["measured.profile"] = spec.measured.profile
    for name, option in ({} if spec.plan is None else spec.plan.options).items():
        values[f"plan.options.{name}.settings"] = option.settings
    for field, value in values.items():
        for number in _numbers(value):
            if not _is_stored_exactly(number):
                raise AppResourceError(
                    f"{field}: Kubernetes does not store {number} exactly: use fewer digits, or text"
                )


def _is_stored_exactly(number: float) -> bool:
    """Whether the API server returns the number that it receives.

    It keeps integers of 64 bits. It reads others as floats, and writes whole floats below 1e21 without an exponent, so
    that they are read as integers.
    """
    if isinstance(number, int) and -(2**63) <= number < 2**63:
        return True
    try:
        stored = float(number)
    except OverflowError:
        return False
    if stored.is_integer() and abs(stored) < 1e21:
        return number == int(Decimal(repr(stored)))
    return isfinite(stored) and number == stored


def _numbers(value: JsonValue) -> list[int | float]:
    match value:
        case dict():
            return [number for item in value.values() for number in _numbers(item)]
        case list():
            return [number for item in value for number in _numbers(item)]
        case bool() | str() | None:
            return []
        case _:
            return [value]

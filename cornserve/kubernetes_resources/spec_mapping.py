"""Conversion between `App.spec` and the spec of the stored record."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from math import gcd, isfinite, lcm
from typing import Any

from pydantic import JsonValue, ValidationError

from cornserve.app.record import AppSpec
from cornserve.app.settings import AppPolicies, Rollout
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.app_spec import (
    MAX_WEIGHT,
    AppResourceSpec,
    ModelSection,
    RestartSection,
    SourceSection,
)
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
        resource = from_json(AppResourceSpec, spec)
        return AppSpec(
            **_model_fields(resource.model),
            **_source_fields(resource.source),
            replicas=resource.replicas,
            executor_replicas=resource.executor_replicas,
            policies=resource.policies or AppPolicies(),
            held_until=resource.held_until,
            rollout=resource.rollout or Rollout(),
            restart=resource.restart.id if resource.restart else "",
            executors=resource.executors,
            plan=resource.plan,
            planning=resource.planning,
            measured=resource.measured,
        )
    except ValidationError as error:
        raise AppResourceError(f"spec: {describe_all(error.errors())}") from error


def encode_spec(spec: AppSpec, current: JsonObject | None = None) -> JsonObject:
    """Returns `App.spec`. Fields of the `current` spec keep their form if their meaning is unchanged.

    Raises `AppResourceError` if the API cannot represent the spec, such as numbers with too many digits.
    """
    _check_numbers(spec)
    new = to_json(_resource(spec))
    new["replicas"] = spec.replicas
    if current is None:
        return new
    unchanged = to_json(_resource(decode_spec(current)))
    kept = {name: value for name, value in current.items() if new.get(name) == unchanged.get(name)}
    return {name: kept.get(name, value) for name, value in new.items()} | kept


def _resource(spec: AppSpec) -> AppResourceSpec:
    model = source = None
    if spec.model is not None:
        shares = None if spec.shares is None else _weights(spec.shares)
        model = ModelSection(
            id=spec.model,
            revision=spec.revision,
            summary=spec.model_summary,
            lora=spec.lora,
            drawer=spec.drawer,
            drawer_summary=spec.drawer_summary,
            media_options=spec.media_options,
            storage=spec.storage,
            shares=shares,
        )
    else:
        source = SourceSection(
            inline=spec.source, config_map_key_ref=spec.source_config_map, allow_paths=spec.allow_paths
        )
    return AppResourceSpec(
        model=model,
        source=source,
        replicas=spec.replicas,
        executor_replicas=spec.executor_replicas,
        policies=None if spec.policies == AppPolicies() else spec.policies,
        held_until=spec.held_until,
        rollout=None if spec.rollout == Rollout() else spec.rollout,
        restart=RestartSection(id=spec.restart) if spec.restart else None,
        executors=spec.executors,
        plan=spec.plan,
        planning=spec.planning,
        measured=spec.measured,
    )


def _model_fields(model: ModelSection | None) -> dict[str, Any]:
    if model is None:
        return {}
    shares = None if model.shares is None else {path: float(weight) for path, weight in model.shares.items()}
    return {
        "model": model.id,
        "revision": model.revision,
        "model_summary": model.summary,
        "lora": model.lora,
        "drawer": model.drawer,
        "drawer_summary": model.drawer_summary,
        "media_options": model.media_options,
        "storage": model.storage,
        "shares": shares,
    }


def _source_fields(source: SourceSection | None) -> dict[str, Any]:
    if source is None:
        return {}
    return {
        "source": source.inline,
        "source_config_map": source.config_map_key_ref,
        "allow_paths": source.allow_paths,
    }


def _weights(shares: Mapping[str, float]) -> dict[str, int]:
    """Returns the integer weights with the same proportions: `{"a": 0.25, "b": 0.75}` becomes `{"a": 1, "b": 3}`.

    Integers stay as they are. Raises `AppResourceError` if the weights would exceed 1,000,000.
    """
    if all(_is_weight(share) for share in shares.values()):
        return {path: int(share) for path, share in shares.items()}
    exact = {path: Fraction(str(share)) for path, share in shares.items()}
    unit = Fraction(
        gcd(*(share.numerator for share in exact.values())), lcm(*(share.denominator for share in exact.values()))
    )
    weights = {path: int(share / unit) for path, share in exact.items()}
    if max(weights.values()) > MAX_WEIGHT:
        raise AppResourceError(
            f"shares: {dict(shares)} have no integer weights up to {MAX_WEIGHT}: use fewer digits, or integer weights"
        )
    return weights


def _is_weight(share: float) -> bool:
    return float(share).is_integer() and share <= MAX_WEIGHT


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

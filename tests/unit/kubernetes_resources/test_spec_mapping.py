from __future__ import annotations

from json import dumps, loads
from typing import Any

import pytest
from hypothesis import given, settings

from cornserve.app.record import AppSpec
from cornserve.app.settings import ExecutorOverride, Rollout
from cornserve.kubernetes_resources.spec_mapping import AppResourceError, decode_spec, encode_spec
from tests.unit.kubernetes_resources.strategies import app_specs

MODEL = {"model": {"id": "m"}}


@given(app_specs)
@settings(max_examples=30)
def test_every_spec_is_read_back_unchanged(spec: AppSpec) -> None:
    assert decode_spec(loads(dumps(encode_spec(spec)))) == spec


@given(app_specs)
@settings(max_examples=30)
def test_a_spec_that_is_written_back_unchanged_is_identical(spec: AppSpec) -> None:
    encoded = encode_spec(spec)
    assert encode_spec(decode_spec(encoded), encoded) == encoded


def test_a_change_keeps_the_form_of_the_other_fields() -> None:
    written: dict[str, Any] = {
        "model": {"id": "m"},
        "policies": {"routing": "least-loaded"},
        "rollout": {"type": "RollingUpdate"},
        "executors": [],
        "replicas": 1,
    }

    changed = decode_spec(written).model_copy(update={"replicas": 3})

    assert encode_spec(changed, written) == written | {"replicas": 3}


def test_a_field_that_gets_its_default_is_removed() -> None:
    written: dict[str, Any] = MODEL | {"restart": {"id": "1"}, "rollout": {"type": "Recreate"}, "replicas": 1}

    changed = decode_spec(written).model_copy(update={"restart": "", "rollout": Rollout()})

    assert encode_spec(changed, written) == MODEL | {"replicas": 1}


def test_source_of_a_config_map_stays_a_reference() -> None:
    reference = {"source": {"configMapKeyRef": {"name": "brief", "key": "brief.py"}}, "replicas": 1}

    spec = decode_spec(reference)

    assert spec.source is None
    assert encode_spec(spec.model_copy(update={"replicas": 2}), reference) == reference | {"replicas": 2}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec: an app needs either a source or a model, but neither is given"),
        (MODEL | {"source": {"inline": "x"}}, "both are given"),
        (MODEL | {"policies": {"routing": "Static"}}, "spec: policies.routing: .*'Static'"),
        (MODEL | {"policies": {"targets": {}}}, "spec: policies.targets: no target is given"),
        (MODEL | {"newField": 1}, "spec: newField: is not a known field"),
        ({"model": {"id": "m", "shares": {"a": 0}}}, "all of .* are 0"),
        (MODEL | {"rollout": {"progress_deadline_seconds": 1}}, "rollout.progress_deadline_seconds: is not a known"),
    ],
)
def test_an_invalid_resource_is_refused_with_its_field(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(AppResourceError, match=message):
        decode_spec(spec)


@pytest.mark.parametrize(
    "number",
    [2**63 + 1, 10**400, 6.067849458847065e16, float("inf"), float("nan")],
    ids=lambda number: f"{number:.3g}" if isinstance(number, float) else f"{number.bit_length()} bits",
)
def test_numbers_that_the_api_server_would_change_are_refused(number: float) -> None:
    override = ExecutorOverride.model_construct(name="llm", options={"a": [{"b": number}]}, pod_template=None)
    with pytest.raises(AppResourceError, match=r"executors\.llm\.options: Kubernetes does not store .* exactly"):
        encode_spec(AppSpec.model_construct(model="m", executors=[override]))


@pytest.mark.parametrize(
    ("shares", "weights"),
    [
        ({"a": 0.3, "b": 0.7}, {"a": 3, "b": 7}),
        ({"a": 0.25, "b": 0.75, "c": 0}, {"a": 1, "b": 3, "c": 0}),
        ({"a": 30, "b": 70}, {"a": 30, "b": 70}),
        ({"a": 2_000_000, "b": 4_000_000}, {"a": 1, "b": 2}),
    ],
)
def test_shares_become_integer_weights_with_the_same_proportions(
    shares: dict[str, float], weights: dict[str, int]
) -> None:
    assert encode_spec(AppSpec(model="m", shares=shares))["model"]["shares"] == weights


def test_shares_with_too_many_digits_have_no_integer_weights() -> None:
    with pytest.raises(AppResourceError, match="use fewer digits"):
        encode_spec(AppSpec(model="m", shares={"a": 0.123456789, "b": 1}))

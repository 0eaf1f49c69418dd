from __future__ import annotations

from json import dumps, loads
from typing import Any

import pytest
from hypothesis import given, settings

from cornserve.app.settings import ExecutorOverride, Rollout
from cornserve.app.spec import AppModel, AppSpec
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

    changed = decode_spec(written).model_copy(update={"restart": None, "rollout": Rollout()})

    assert encode_spec(changed, written) == MODEL | {"replicas": 1}


def test_source_of_a_config_map_stays_a_reference() -> None:
    reference = {"source": {"configMapKeyRef": {"name": "brief", "key": "brief.py"}}, "replicas": 1}

    spec = decode_spec(reference)

    assert spec.inline_source is None
    assert encode_spec(spec.model_copy(update={"replicas": 2}), reference) == reference | {"replicas": 2}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec: set exactly one of model, source"),
        (MODEL | {"source": {"inline": "x"}}, "spec: set exactly one of model, source"),
        (MODEL | {"policies": {"routing": "Static"}}, "spec: policies.routing: .*'Static'"),
        (MODEL | {"policies": {"targets": {}}}, "spec: policies.targets: no target is given"),
        (MODEL | {"newField": 1}, "spec: newField: is not a known field"),
        ({"model": {"id": "m", "shares": {"a": 0}}}, "spec: model.shares: all weights are 0"),
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
        encode_spec(AppSpec.model_construct(model=AppModel(id="m"), executors=[override]))

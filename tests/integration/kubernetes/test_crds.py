"""Tests of the CRDs with a real API server: round trips, refusals, columns, scale."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings

from cornserve.app.record import AppStatus, GroupStatus, Phase, ReplicaState, ReplicaStatus, Route
from cornserve.app.spec import AppSpec
from cornserve.kubernetes_resources.camel_case import to_json
from cornserve.kubernetes_resources.crd import app_crd
from cornserve.kubernetes_resources.route_resource import decode_route, encode_route
from cornserve.kubernetes_resources.schema_check import OutdatedCrdError, check_schemas
from cornserve.kubernetes_resources.spec_mapping import AppResourceError, decode_spec, encode_spec
from cornserve.kubernetes_resources.status_mapping import decode_status, encode_status
from tests.kubernetes.api_server import ApiServer
from tests.unit.app.plans import cell, plan
from tests.unit.kubernetes_resources.strategies import app_specs, app_statuses, routes
from tests.waiting import until

API = "cornserve.ai/v1alpha1"
MODEL = {"model": {"id": "m"}}

PLANNING: Json = {
    "gpus": 4,
    "workload": {"all": {"components": ["llm"], "share": 1}},
    "profile": {"format": "cornserve-planner/profile"},
}

AUTOSCALING: Json = {"executors": [{"name": "llm", "capacity": 2000}]}

TWO_CELLS = plan(cell(1, {"EL": 1}, count=1, is_shared=True), cell(3, {"E": 1, "L": 2}, count=1))

Json = dict[str, Any]
Create = Callable[..., Json]

round_trip = settings(
    max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


class RefusedError(Exception):
    """The API server's message."""


def sent(api_server: ApiServer, method: str, path: str, body: Json) -> Json:
    try:
        response: Json = api_server.request(method, path, body)
    except httpx2.HTTPStatusError as error:
        raise RefusedError(error.response.json()["message"]) from error
    return response


@pytest.fixture
def path(kube_namespace: str) -> Callable[..., str]:
    return lambda plural="apps": f"/apis/{API}/namespaces/{kube_namespace}/{plural}"


@pytest.fixture
def create(api_server: ApiServer, path: Callable[..., str]) -> Create:
    """Creates a resource. Unknown fields are errors."""

    def create(spec: Json, *, name: str | None = None, kind: str = "App") -> Json:
        body = {"apiVersion": API, "kind": kind, "metadata": {"name": name or f"a-{uuid.uuid4().hex}"}, "spec": spec}
        plural = f"{kind.lower()}s"
        return sent(api_server, "POST", f"{path(plural)}?fieldValidation=Strict", body)

    return create


@pytest.fixture
def refusal(create: Create) -> Callable[..., str]:
    """Returns the message with which the API server refuses an app."""

    def refusal(spec: Json, **kwargs: Any) -> str:
        with pytest.raises(RefusedError) as refused:
            create(spec, **kwargs)
        return str(refused.value)

    return refusal


@pytest.fixture
async def document(api_server: ApiServer) -> Json:
    """The OpenAPI document of the API group, which the API server publishes some time after the CRDs."""
    documents: list[Json] = []

    def is_published() -> bool:
        try:
            documents.append(api_server.request("GET", f"/openapi/v3/apis/{API}"))
        except httpx2.HTTPStatusError:
            return False
        return {"App", "AppRoute"} <= {name.rpartition(".")[2] for name in documents[-1]["components"]["schemas"]}

    await until(is_published)
    return documents[-1]


@given(spec=app_specs)
@round_trip
def test_every_spec_is_stored_unchanged(create: Create, spec: AppSpec) -> None:
    stored = create(encode_spec(spec))["spec"]

    assert decode_spec(stored) == spec
    assert encode_spec(spec, stored) == stored


@given(status=app_statuses())
@round_trip
def test_every_status_is_stored_unchanged(
    api_server: ApiServer, create: Create, path: Callable[..., str], status: AppStatus
) -> None:
    app = create(MODEL)

    url = f"{path()}/{app['metadata']['name']}/status?fieldValidation=Strict"
    written = sent(api_server, "PUT", url, app | {"status": encode_status(status)})

    stored = written.get("status", {})
    assert decode_status(stored) == status
    assert encode_status(status, stored) == stored
    assert written["spec"] == app["spec"]


@given(route=routes())
@round_trip
def test_every_route_is_stored_unchanged(create: Create, route: Route) -> None:
    stored = decode_route(create(encode_route(route), kind="AppRoute")["spec"])

    assert stored == route
    assert [spec.key for spec in stored.specs.values()] == list(route.specs)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec: Invalid value: set exactly one of model, source"),
        (MODEL | {"source": {"inline": "x"}}, "spec: Invalid value: set exactly one of model, source"),
        ({"model": {}}, "spec.model.id: Required value"),
        ({"model": {"id": ""}}, 'spec.model.id: Invalid value: "": .* at least 1 chars'),
        ({"model": {"id": "m", "revision": "no spaces"}}, "spec.model.revision: Invalid value"),
        ({"model": {"id": "m", "storage": {}}}, "spec.model.storage: Invalid value: set exactly one of"),
        (
            {"model": {"id": "m", "storage": {"hostPath": {"path": "/a"}, "image": {"reference": "r"}}}},
            "spec.model.storage: Invalid value: set exactly one of persistentVolumeClaim, image, hostPath, download",
        ),
        (
            {"model": {"id": "m", "storage": {"persistentVolumeClaim": {"claimName": "a", "path": "../b"}}}},
            "spec.model.storage.persistentVolumeClaim.path: Invalid value",
        ),
        ({"model": {"id": "m", "storage": {"hostPath": {"path": "a"}}}}, "spec.model.storage.hostPath.path: Invalid"),
        ({"model": {"id": "m", "shares": {"a": 0}}}, "spec.model.shares: .* all weights are 0"),
        ({"model": {"id": "m", "shares": {}}}, "spec.model.shares: .* at least 1 properties"),
        ({"model": {"id": "m", "shares": {"a": 0.5}}}, "spec.model.shares.a: .* must be of type integer"),
        ({"model": {"id": "m", "shares": {"a": -1}}}, "spec.model.shares.a: .* greater than or equal to 0"),
        ({"source": {}}, "spec.source: Invalid value: set exactly one of inline, configMapKeyRef"),
        ({"source": {"configMapKeyRef": {"name": "a"}}}, "spec.source.configMapKeyRef.key: Required value"),
        (MODEL | {"replicas": -1}, "spec.replicas: .* greater than or equal to 0"),
        (MODEL | {"replicas": 65}, "spec.replicas: .* less than or equal to 64"),
        (MODEL | {"policies": {"routing": "Static"}}, 'spec.policies.routing: Invalid value: "Static"'),
        (MODEL | {"rollout": {"type": "Blue"}}, 'spec.rollout.type: Unsupported value: "Blue"'),
        (MODEL | {"rollout": {"progressDeadlineSeconds": 0}}, "spec.rollout.progressDeadlineSeconds: "),
        (MODEL | {"restart": {"executors": {"llm": 1}}}, "spec.restart.executors.llm: .* type string"),
        (MODEL | {"executors": [{"name": "llm"}, {"name": "llm"}]}, r"spec.executors\[1\]: Duplicate value: "),
        (MODEL | {"executors": [{"options": {}}]}, r"spec.executors\[0\].name: Required value"),
        (MODEL | {"executors": [{"name": "*", "options": 1}]}, r"spec.executors\[0\].options: .* type object"),
        (
            MODEL | {"policies": {"targets": {"tbtSeconds": 1, "admission": True}}},
            "spec.policies.targets: .* admission needs a target: set ttftSeconds or endToEndSeconds",
        ),
        (MODEL | {"policies": {"targets": {}}}, "spec.policies.targets: .* set ttftSeconds"),
        (
            MODEL | {"planning": PLANNING, "policies": {"adaptation": {}, "autoscaling": AUTOSCALING}},
            "spec.policies: .* adaptation changes the cells of a plan, and autoscaling the replicas of executors",
        ),
        (MODEL | {"replicas": 2, "plan": to_json(plan())}, "spec.replicas: .* a plan has the replicas"),
        (
            MODEL | {"executorReplicas": {"llm": 2}, "planning": PLANNING},
            "spec.executorReplicas: .* the plan that is made has the replicas",
        ),
        (
            MODEL | {"executorReplicas": {"llm": 2}, "plan": to_json(plan()), "policies": {"adaptation": {}}},
            "spec.executorReplicas: .* policies.adaptation changes the replicas",
        ),
        (
            MODEL | {"policies": {"autoscaling": AUTOSCALING}, "plan": to_json(plan())},
            "spec.policies.autoscaling: .* a plan is autoscaled if it runs one cell, with isShared",
        ),
        (
            MODEL | {"policies": {"autoscaling": AUTOSCALING}, "plan": to_json(TWO_CELLS)},
            "spec.policies.autoscaling: .* a plan is autoscaled if it runs one cell",
        ),
        (
            MODEL | {"policies": {"autoscaling": AUTOSCALING}, "planning": PLANNING},
            "spec.policies.autoscaling: .* the plan that is made may have several cells",
        ),
        (MODEL | {"replicas": 2, "planning": PLANNING}, "spec.replicas: .* a plan has the replicas"),
        (MODEL | {"planning": PLANNING | {"objective": "gpus"}}, "spec.planning.objective: .* that a rate minimizes"),
        (
            MODEL | {"planning": {"gpus": 4, "workload": PLANNING["workload"], "gpuCounts": {"EL": 2}}},
            "spec.planning.gpuCounts: .* set profile",
        ),
        (MODEL | {"planning": PLANNING | {"rate": 2}}, "spec.planning: .* set exactly one of gpus, gpusOf, rate"),
        (MODEL | {"replica": 1}, 'unknown field "spec.replica"'),
        ({"model": {"id": "m", "storag": {}}}, 'unknown field "spec.model.storag"'),
    ],
)
def test_a_wrong_app_is_refused_with_its_field(refusal: Callable[..., str], spec: Json, message: str) -> None:
    """The API server refuses what the models refuse: records of other versions have passed another CRD."""
    assert re.search(message, refusal(spec), re.DOTALL)
    with pytest.raises(AppResourceError):
        decode_spec(spec)


def test_an_app_without_a_plan_has_no_adaptation(refusal: Callable[..., str]) -> None:
    """The models admit it: a deployment without a plan keeps that of the app. The gateway checks the result."""
    message = "spec.policies.adaptation: .* adapts by the cells of a plan"
    assert re.search(message, refusal(MODEL | {"policies": {"adaptation": {}}}), re.DOTALL)


@pytest.mark.parametrize(
    ("name", "message"), [("a" * 64, "more than 63 characters"), ("a_b", "metadata.name"), ("A", "metadata.name")]
)
def test_a_name_that_is_not_a_model_name_is_refused(refusal: Callable[..., str], name: str, message: str) -> None:
    assert message in refusal(MODEL, name=name)


def test_kubectl_prints_the_state(
    api_server: ApiServer, kube_namespace: str, create: Create, path: Callable[..., str]
) -> None:
    group = GroupStatus(
        key="llm-1",
        executor="llm",
        gpus=2,
        wanted=1,
        replicas=[ReplicaStatus(id="llm-1-x", state=ReplicaState.READY)],
    )
    status = AppStatus(phase=Phase.SERVING, generation=1, serving_generation=1, groups=[group])
    app = create(MODEL, name="a") | {"status": encode_status(status, url="http://gateway/v1")}
    api_server.request("PUT", f"{path()}/a/status", app)

    narrow = api_server.kubectl("get", "capp", "-n", kube_namespace).split("\n")
    wide = api_server.kubectl("get", "cornserve", "-o", "wide", "-n", kube_namespace)

    assert narrow[0].split() == ["NAME", "READY", "REASON", "DESIRED", "REPLICAS", "GPUS", "AGE"]
    assert narrow[1].split()[:6] == ["a", "True", "Serving", "1", "1", "2"]
    assert "http://gateway/v1" in wide
    api_server.kubectl("wait", "--for=condition=Ready", "app/a", "-n", kube_namespace, "--timeout=10s")


def test_kubectl_prints_all_replicas_of_a_planned_app(
    api_server: ApiServer, kube_namespace: str, create: Create, path: Callable[..., str]
) -> None:
    small, large = (
        GroupStatus(key=f"{name}-1", wanted=wanted, replicas=[ReplicaStatus(id=f"{name}-x", state=ReplicaState.READY)])
        for name, wanted in (("small", 1), ("large", 2))
    )
    status = AppStatus(phase=Phase.STARTING, generation=1, cells=2, groups=[small, large])
    app = create(MODEL | {"plan": to_json(plan())}, name="a") | {"status": encode_status(status)}
    api_server.request("PUT", f"{path()}/a/status", app)

    header, row = api_server.kubectl("get", "app", "-o", "wide", "-n", kube_namespace).splitlines()

    columns = {name: row[header.index(name) :].split()[0] for name in ("CELLS", "DESIRED", "REPLICAS")}
    assert columns == {"CELLS": "2", "DESIRED": "3", "REPLICAS": "2"}
    for replicas in (0, 2):
        with pytest.raises(AssertionError, match="a plan has the replicas of the executors"):
            api_server.kubectl("scale", "app/a", f"--replicas={replicas}", "-n", kube_namespace)


def test_kubectl_scales(api_server: ApiServer, kube_namespace: str, create: Create, path: Callable[..., str]) -> None:
    """Also an autoscaler, which reads the subresource, scales an app whose manifest has no replicas."""
    create(MODEL, name="a")

    assert api_server.request("GET", f"{path()}/a/scale")["spec"] == {"replicas": 1}
    api_server.kubectl("scale", "app/a", "--replicas=3", "-n", kube_namespace)

    assert api_server.request("GET", f"{path()}/a")["spec"]["replicas"] == 3


def test_kubectl_explains_the_fields(api_server: ApiServer, document: Json) -> None:
    text = api_server.kubectl("explain", "app.spec.model.storage.download", "--api-version", API)

    assert "cacheClaimName" in text
    assert "The name of the PersistentVolumeClaim that contains the Hugging Face cache." in text


def test_applying_a_manifest_again_changes_nothing(
    api_server: ApiServer, kube_namespace: str, path: Callable[..., str]
) -> None:
    template = {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}}
    spec = {"model": {"id": "m", "shares": {"e-l": 30}}, "executors": [{"name": "*", "podTemplate": template}]}
    manifest = json.dumps({"apiVersion": API, "kind": "App", "metadata": {"name": "a"}, "spec": spec})

    def apply() -> Json:
        api_server.kubectl("apply", "--server-side", "-n", kube_namespace, "-f", "-", stdin=manifest)
        app: Json = api_server.request("GET", f"{path()}/a")
        return app

    first = apply()
    assert apply() == apply() == first
    api_server.kubectl("scale", "app/a", "--replicas=3", "-n", kube_namespace)
    scaled = apply()
    assert scaled["spec"]["replicas"] == 3
    assert apply() == scaled


def test_the_installed_crds_are_current(document: Json) -> None:
    check_schemas(document)


@pytest.mark.parametrize("field", ["replicas", "rollout"])
def test_an_older_crd_is_refused_with_the_missing_fields(document: Json, field: str) -> None:
    del document["components"]["schemas"]["ai.cornserve.v1alpha1.App"]["properties"]["spec"]["properties"][field]

    with pytest.raises(OutdatedCrdError, match=rf"apps\.cornserve\.ai is older .* lacks spec\.{field}"):
        check_schemas(document)


def test_an_older_crd_is_refused_also_for_a_field_in_a_map(document: Json) -> None:
    spec = document["components"]["schemas"]["ai.cornserve.v1alpha1.App"]["properties"]["spec"]
    del spec["properties"]["plan"]["properties"]["options"]["additionalProperties"]["properties"]["gpuType"]

    with pytest.raises(OutdatedCrdError, match=r"it lacks spec\.plan\.options\.NAME\.gpuType, which"):
        check_schemas(document)


def test_a_newer_crd_is_accepted(document: Json) -> None:
    spec = document["components"]["schemas"]["ai.cornserve.v1alpha1.App"]["properties"]["spec"]
    spec["properties"]["newField"] = {"type": "string"}

    check_schemas(document)


def test_missing_crds_are_refused() -> None:
    with pytest.raises(OutdatedCrdError, match=r"apps\.cornserve\.ai is not installed"):
        check_schemas({})


def test_the_api_server_accepts_the_generated_crd_without_a_change(api_server: ApiServer) -> None:
    """A default that the API server adds to the schema would be a difference in every comparison."""
    generated = app_crd()["spec"]["versions"][0]["schema"]
    installed = api_server.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/apps.cornserve.ai")

    assert installed["spec"]["versions"][0]["schema"] == generated

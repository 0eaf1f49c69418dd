"""The schema refuses wrong values and names them."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
import yaml

from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.limits import Limits
from tests.kubernetes.helm import CHART, HelmError, Manifests, render, run_helm


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("gateway.replica=3", "at '/gateway': additional properties 'replica' not allowed"),
        ("gateway.replicas=0", "at '/gateway/replicas': minimum"),
        ("gateway.replicas=two", "at '/gateway/replicas': got string, want integer"),
        ("gateway.gpuPrices={cheap}", "at '/gateway/gpuPrices/0'"),
        ("gateway.prometheus=prometheus:9090", "at '/gateway/prometheus'"),
        ("limits.in-flight=many", "at '/limits/in-flight': got string, want integer"),
        ("access.adminToken=short", "at '/access/adminToken'"),
        ("access.apiKeys={#sixteencharacters}", "at '/access/apiKeys/0'"),
        ("instanceSecret.value=abc", "at '/instanceSecret/value'"),
        ("images.pullPolicy=Sometimes", "at '/images/pullPolicy'"),
        ("images.control.digest=sha256:1", "at '/images/control/digest'"),
        ("executors.sharedMemory.type=magic", "at '/executors/sharedMemory/type'"),
        ("executors.cpu.resources.limits.memory=much", "at '/executors/cpu/resources/limits/memory'"),
        ("executors.cpu.resources.limits.cpu=-1", "at '/executors/cpu/resources/limits/cpu': minimum: got -1, want 0"),
        ("gateway.httpRoute.enabled=true", "at '/gateway/httpRoute/parentRefs': minItems"),
        ("executors.cpu.maxSurge=0", "at '/executors/cpu/maxUnavailable': minimum: got 0, want 1"),
        ("executors.gpu.maxSurge=0", "at '/executors/gpu/maxUnavailable': minimum: got 0, want 1"),
        ("executors.cpu.maxSurge=0%", "at '/executors/cpu/maxSurge': got string, want integer"),
        ("executors.gpu.maxUnavailable=0%", "at '/executors/gpu/maxUnavailable': got string, want integer"),
        ("executors.cpu.maxSurge=0,executors.cpu.maxUnavailable=null", "at '/executors/cpu': missing property"),
        ("executors.peerNetworks=null", "at '/executors': missing property 'peerNetworks'"),
        ("executors.startSeconds=null", "at '/executors': missing property 'startSeconds'"),
        ("gateway.podDisruptionBudget.maxUnavailable=0", "at '/gateway/podDisruptionBudget/maxUnavailable'"),
        ("gateway.podDisruptionBudget.maxUnavailable=0%", "at '/gateway/podDisruptionBudget/maxUnavailable'"),
        ("controller.podDisruptionBudget.maxUnavailable=00%", "at '/controller/podDisruptionBudget/maxUnavailable'"),
        (
            "gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=1",
            "minReplicas is larger than maxReplicas",
        ),
        ("internalTls.enabled=true,executors.transport=ucx", "at '/executors/transport': value must be one of"),
        ("limits.inflight=4", "value must be one of 'in-flight'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, message: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render("--set", setting)

    assert message in str(refusal.value)


def test_texts_of_digits_stay_texts_in_the_cluster_settings() -> None:
    digits = {"privateSharedMemory": "1073741824", "priorityClassName": "1", "schedulerName": "2", "gpuResource": "3"}
    manifests = Manifests(render(*(f"--set-string=executors.{name}={value}" for name, value in digits.items())))

    config_map = manifests.get("ConfigMap", "cornserve-cluster-settings")
    settings = ClusterSettings.model_validate(yaml.safe_load(config_map["data"]["settings.yaml"]))
    assert settings.model_dump(by_alias=True).items() >= digits.items()


def test_every_value_has_a_schema_and_a_default() -> None:
    def schema_names(schema: dict[str, Any], path: str = "") -> set[str]:
        properties: dict[str, Any] = schema.get("properties", {})
        return {path}.union(*(schema_names(child, f"{path}.{key}") for key, child in properties.items()))

    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    missing = schema_names(schema) - {".global"} - names_of_objects(values)
    assert not missing


def test_every_limit_can_be_set() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert schema["properties"]["limits"]["propertyNames"]["enum"] == [
        limit.name.replace("_", "-") for limit in fields(Limits)
    ]


def names_of_objects(value: Any, path: str = "") -> set[str]:
    """Returns the paths of a value and of all values in it."""
    if not isinstance(value, dict):
        return {path}
    return {path}.union(*(names_of_objects(child, f"{path}.{key}") for key, child in value.items()))


def test_helm_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in run_helm("lint", "--strict", CHART)


def test_a_gateway_stops_after_its_requests() -> None:
    pod = Manifests(render("--set", "gateway.drainSeconds=100,gateway.preStopSeconds=7")).pod("cornserve-gateway")

    assert pod["spec"]["terminationGracePeriodSeconds"] == 112
    assert pod["spec"]["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}


NODE_AFFINITY = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
POD_ANTI_AFFINITY = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("component", ["gateway", "controller"])
def test_pods_avoid_nodes_with_others_unless_an_anti_affinity_is_given(component: str) -> None:
    def affinity(*settings: str) -> dict[str, Any]:
        options = [part for setting in settings for part in ("--set", f"{component}.{setting}")]
        found: dict[str, Any] = Manifests(render(*options)).pod(f"cornserve-{component}")["spec"]["affinity"]
        return found

    [preferred] = affinity()["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    labels = preferred["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels["app.kubernetes.io/component"] == component
    assert affinity(f"{NODE_AFFINITY}[0].weight=1").keys() == {"nodeAffinity", "podAntiAffinity"}
    own = affinity(f"{POD_ANTI_AFFINITY}[0].topologyKey=zone")
    assert own == {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}


def test_an_http_route_leads_to_the_service() -> None:
    manifests = Manifests(render("--set", "gateway.httpRoute.enabled=true,gateway.httpRoute.parentRefs[0].name=public"))

    spec = manifests.get("HTTPRoute")["spec"]
    service = manifests.get("Service")
    assert spec["parentRefs"] == [{"name": "public"}]
    assert spec["rules"] == [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
            "timeouts": {"request": "600s"},
            "backendRefs": [{"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}],
        }
    ]

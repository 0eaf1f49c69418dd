"""The dashboard and the PodMonitor use what the processes serve."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from cornserve.control.generated_secrets import access_data
from scripts.cluster.programs import ROOT
from tests.kubernetes.helm import Manifests, render

SUFFIXES = re.compile("_bucket$")


def documented_metrics() -> dict[str, set[str]]:
    """Returns the metrics of the reference with their labels."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(cornserve_\w+)` \| \w+ \| ([^|]*)\|", page, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def dashboard() -> dict[str, Any]:
    options = ("--set", "monitoring.dashboard.enabled=true")
    loaded: dict[str, Any] = json.loads(
        Manifests(render(*options)).get("ConfigMap", "cornserve-dashboard")["data"]["cornserve.json"]
    )
    return loaded


def test_every_query_of_the_dashboard_names_documented_metrics_and_labels() -> None:
    documented = documented_metrics()
    added_by_prometheus = {"namespace", "pod", "component", "group", "replica", "le"}

    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            names = {SUFFIXES.sub("", name) for name in re.findall(r"cornserve_\w+", target["expr"])}
            assert names or "process_" in target["expr"]
            assert names <= documented.keys(), panel["title"]
            known = added_by_prometheus.union(*(documented[name] for name in names))
            grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
            labels = {label.strip() for group in grouped for label in group.split(",")}
            assert labels | set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, panel["title"]


def test_the_dashboard_is_found_by_the_sidecar_of_grafana() -> None:
    manifest = Manifests(render("--set", "monitoring.dashboard.enabled=true")).get("ConfigMap", "cornserve-dashboard")

    assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_prometheus_sends_a_key_to_gateways() -> None:
    manifests = Manifests(render("--set", "monitoring.podMonitor.enabled=true"))

    gateway, others = manifests.get("PodMonitor")["spec"]["podMetricsEndpoints"]
    credentials = gateway["authorization"]["credentials"]
    assert manifests.get("Secret", credentials["name"])
    assert credentials["key"] in access_data({})
    assert "authorization" not in others


def test_prometheus_scrapes_ports_that_pods_have() -> None:
    manifests = Manifests(render("--set", "monitoring.podMonitor.enabled=true"))
    monitor = manifests.get("PodMonitor")["spec"]
    pods = [manifests.pod("cornserve-gateway"), manifests.pod("cornserve-controller")]

    ports = {port["name"] for pod in pods for port in pod["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} == ports
    for pod in pods:
        assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_optional_resources_are_off_by_default() -> None:
    kinds = {item["kind"] for item in yaml.safe_load_all(render()) if item}

    optional = {"PodMonitor", "HTTPRoute", "Ingress", "HorizontalPodAutoscaler", "PersistentVolume"}
    assert not kinds & {*optional, "ValidatingAdmissionPolicy", "ClusterRole", "ClusterRoleBinding"}

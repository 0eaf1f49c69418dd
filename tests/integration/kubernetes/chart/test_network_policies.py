"""The NetworkPolicies permit the connections of the installation, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cornserve.control.launcher.kubernetes.names import UCX_PORTS
from tests.kubernetes.helm import Manifests, render

RESTRICTED = (
    "networkPolicies.egress.enabled=true",
    "networkPolicies.clients[0].podSelector.matchLabels.role=client",
    "networkPolicies.prometheus[0].podSelector.matchLabels.role=prometheus",
)
COMMON = {"app.kubernetes.io/name": "cornserve", "app.kubernetes.io/instance": "cornserve"}
PODS = {
    **{
        component: {**COMMON, "app.kubernetes.io/component": component}
        for component in ("gateway", "controller", "profiler", "test", "secrets")
    },
    "executor": {"app.kubernetes.io/instance": "cornserve", "cornserve.ai/executor": "llm-1"},
    "client": {"role": "client"},
    "prometheus": {"role": "prometheus"},
    "stranger": {"role": "stranger"},
}
"""The labels of pods."""

UCX_EDGES = (UCX_PORTS.start - 1, UCX_PORTS[0], UCX_PORTS[-1], UCX_PORTS.stop)
"""The first and the last port of UCX over TCP, and those outside of them."""

PORTS = {"http": 8000, "metrics": 9100}
CONNECTIONS = {
    *((source, "gateway", 8000) for source in ("client", "prometheus", "gateway", "controller", "profiler", "test")),
    ("prometheus", "controller", 9100),
    *((source, "executor", 9002) for source in ("prometheus", "gateway")),
    *((source, "executor", 9000) for source in ("gateway", "controller", "executor")),
}


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return Manifests(render(*(part for setting in RESTRICTED for part in ("--set", setting))))


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] if each["operator"] == "In" else each["key"] in labels
        for each in expressions
    )


def rules(manifests: Manifests, pod: str, direction: str) -> list[dict[str, Any]] | None:
    """Returns the rules for the connections of a pod. None: it is not restricted."""
    selecting = [
        item["spec"]
        for item in manifests
        if item["kind"] == "NetworkPolicy"
        and matches(item["spec"]["podSelector"], PODS[pod])
        and direction in item["spec"]["policyTypes"]
    ]
    return [rule for spec in selecting for rule in spec.get(direction.lower()) or []] if selecting else None


def permits(rules: list[dict[str, Any]] | None, peers: str, other: str, port: int) -> bool:
    return rules is None or any(
        any(
            (first := PORTS.get(each["port"], each["port"])) <= port <= each.get("endPort", first)
            for each in rule.get("ports", [])
        )
        and any(matches(peer.get("podSelector", {"matchLabels": {"": ""}}), PODS[other]) for peer in rule[peers])
        for rule in rules
        if peers in rule
    )


def connections(manifests: Manifests) -> Iterator[tuple[str, str, int]]:
    for source in PODS:
        for target in ("gateway", "controller", "executor", "profiler", "test", "secrets"):
            for port in (8000, 9000, 9002, 9100, *UCX_EDGES):
                if permits(rules(manifests, source, "Egress"), "to", target, port) and permits(
                    rules(manifests, target, "Ingress"), "from", source, port
                ):
                    yield source, target, port


def test_pods_reach_what_they_use_and_nothing_else(manifests: Manifests) -> None:
    assert {*connections(manifests)} == CONNECTIONS


def test_executors_with_ucx_reach_one_another_at_its_ports() -> None:
    settings = (*RESTRICTED, "executors.transport=ucx")
    manifests = Manifests(render(*(part for setting in settings for part in ("--set", setting))))

    assert {*connections(manifests)} == CONNECTIONS | {
        ("executor", "executor", port) for port in (UCX_PORTS[0], UCX_PORTS[-1])
    }


@pytest.mark.parametrize(
    ("pod", "has_api_server"),
    [
        ("gateway", True),
        ("controller", True),
        ("secrets", True),
        ("executor", False),
        ("profiler", False),
        ("test", False),
    ],
)
def test_restricted_pods_reach_dns_the_public_internet_and_the_api_server_if_they_use_it(
    manifests: Manifests, pod: str, has_api_server: bool
) -> None:
    egress = rules(manifests, pod, "Egress")
    assert egress is not None

    everywhere = {each["port"] for rule in egress if "to" not in rule for each in rule["ports"]}
    [public] = [rule for rule in egress for peer in rule.get("to", []) if peer.get("ipBlock", {}).get("cidr") == "::/0"]

    assert everywhere == ({53, 443, 6443} if has_api_server else {53})
    assert [each["port"] for each in public["ports"]] == [80, 443]
    assert "10.0.0.0/8" in public["to"][0]["ipBlock"]["except"]


def test_the_rules_for_the_outside_can_be_replaced() -> None:
    rule = "networkPolicies.egress.external[0].to[0].ipBlock.cidr=10.1.0.0/16"
    given = Manifests(render("--set", "networkPolicies.egress.enabled=true", "--set", rule))

    for pod in ("gateway", "controller", "executor", "profiler"):
        blocks = [
            peer for each in rules(given, pod, "Egress") or [] for peer in each.get("to", []) if "ipBlock" in peer
        ]
        assert blocks == [{"ipBlock": {"cidr": "10.1.0.0/16"}}]


def test_outgoing_connections_are_not_restricted_by_default() -> None:
    manifests = Manifests(render())

    assert all(rules(manifests, pod, "Egress") is None for pod in PODS)

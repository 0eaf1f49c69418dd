"""The Ingress of the chart leads to the gateways, also below a path prefix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cornserve.home import Home
from tests.ingress_proxy import HOST, PATHS_VALUES, PREFIX, PREFIX_VALUES, check_console, ingress_proxy
from tests.integration.cli.cli_instance import CliInstance
from tests.kubernetes.helm import Manifests, render

TOKEN, KEY = "admin-token-of-tests", "api-key-of-the-tests"


def manifests_with(ingress: Mapping[str, Any]) -> Manifests:
    return Manifests(render("--set-json", f"gateway.ingress={json.dumps(ingress)}"))


@pytest.fixture(scope="module")
def secured_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    """An instance with an admin token and an API key."""
    directory = tmp_path_factory.mktemp("secured")
    files = []
    for name, secret in (("--admin-token", TOKEN), ("--api-keys", KEY)):
        (file := directory / name.strip("-")).write_text(secret)
        file.chmod(0o600)
        files += [name, str(file)]
    instance = CliInstance(Home(directory / "home"))
    try:
        instance.up(*files)
        yield instance
    finally:
        instance.remove()


def test_an_ingress_leads_to_the_service_by_its_paths() -> None:
    manifests = manifests_with({**PATHS_VALUES, "className": "nginx", "tlsSecretName": "certificate"})

    ingress, service = manifests.get("Ingress"), manifests.get("Service", "cornserve")
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": [HOST], "secretName": "certificate"}]
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    [rule] = ingress["spec"]["rules"]
    assert rule["host"] == HOST
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [
        ("/v1", "Prefix"),
        ("/console", "Prefix"),
    ]
    for path in rule["http"]["paths"]:
        backend = path["backend"]["service"]
        assert backend["name"] == service["metadata"]["name"]
        assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "prefix"), [(PATHS_VALUES, ""), (PREFIX_VALUES, PREFIX)], ids=["paths", "below a prefix"]
)
def test_the_rules_of_an_ingress_serve_clients_and_the_console(
    secured_instance: CliInstance, tmp_path: Path, values: Mapping[str, Any], prefix: str
) -> None:
    ingress = manifests_with(values).get("Ingress")

    with ingress_proxy(ingress, secured_instance.url, tmp_path) as url:
        check_console(url + prefix, token=TOKEN, key=KEY)

"""The Ingress of the chart leads to the gateways, also below a path prefix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.home import Home
from tests.ingress_proxy import (
    HOST,
    PATHS_VALUES,
    PREFIX,
    PREFIX_VALUES,
    STRIPPED_VALUES,
    IngressController,
    IngressNginx,
    Traefik,
    check_console,
    ingress_proxy,
)
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
    ("values", "prefix", "controller"),
    [
        (PATHS_VALUES, "", IngressNginx),
        ({**PATHS_VALUES, "pathType": "ImplementationSpecific"}, "", IngressNginx),
        (PREFIX_VALUES, PREFIX, IngressNginx),
        (PATHS_VALUES, "", Traefik),
        (STRIPPED_VALUES, PREFIX, Traefik),
    ],
    ids=["paths", "implementation specific", "regular expression", "Traefik", "stripped by Traefik"],
)
def test_the_rules_of_an_ingress_serve_clients_and_the_console(
    secured_instance: CliInstance,
    tmp_path: Path,
    values: Mapping[str, Any],
    prefix: str,
    controller: type[IngressController],
) -> None:
    ingress = manifests_with(values).get("Ingress")

    with ingress_proxy(ingress, secured_instance.url, tmp_path, controller) as url:
        check_console(url + prefix, token=TOKEN, key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize("controller", [IngressNginx, Traefik])
def test_exact_paths_of_an_ingress_serve_nothing_else(
    secured_instance: CliInstance, tmp_path: Path, controller: type[IngressController]
) -> None:
    ingress = manifests_with({**PATHS_VALUES, "paths": ["/v1/models"], "pathType": "Exact"}).get("Ingress")
    headers = {"host": HOST, "authorization": f"Bearer {KEY}"}

    with (
        ingress_proxy(ingress, secured_instance.url, tmp_path, controller) as url,
        httpx.Client(headers=headers, timeout=60, trust_env=False) as client,
    ):
        assert client.get(f"{url}/v1/models").json()["object"] == "list"
        for path in ("/v1/models/x", "/v1", "/console/"):
            refused = client.get(url + path)
            assert (refused.status_code, refused.headers["content-type"]) == (404, "text/html")  # of nginx

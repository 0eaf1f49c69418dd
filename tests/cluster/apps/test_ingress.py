"""The Ingress of the chart, with nginx in the place of an Ingress controller."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.conftest import KubernetesCluster
from tests.cluster.installation import installation, values
from tests.ingress_proxy import PATHS_VALUES, PREFIX, PREFIX_VALUES, check_console, ingress_proxy
from tests.kubernetes.helm import CHART


def test_an_ingress_serves_clients_and_the_console_also_below_a_prefix(
    cluster: KubernetesCluster, echo_tag: str, tmp_path: Path
) -> None:
    given = values(cluster, echo_tag)
    given = {**given, "gateway": {**given["gateway"], "ingress": PATHS_VALUES}}
    with installation(cluster, given, tmp_path) as release:
        key, token = release.api_key, release.secret("cornserve-access", "admin-token")
        with release.forwarded() as gateway:
            ingress = release.get("ingress", "cornserve")
            with ingress_proxy(ingress, gateway, tmp_path) as url:
                check_console(url, token=token, key=key)

            file = tmp_path / "prefix.yaml"
            file.write_text(yaml.safe_dump({"gateway": {"ingress": PREFIX_VALUES}}))
            release.helm("upgrade", CHART, "--reuse-values", "--values", file)
            ingress = release.get("ingress", "cornserve")
            with ingress_proxy(ingress, gateway, tmp_path) as url:
                check_console(url + PREFIX, token=token, key=key)

        [rule] = ingress["spec"]["rules"]
        service = rule["http"]["paths"][0]["backend"]["service"]["name"]
        slices = release.get("endpointslices", f"--selector=kubernetes.io/service-name={service}")["items"]
        assert any(endpoint["conditions"]["ready"] for each in slices for endpoint in each["endpoints"] or [])

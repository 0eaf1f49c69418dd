"""A namespace holds one installation."""

from __future__ import annotations

from typing import Any

import pytest

from cornserve.control.single_installation import SecondInstallationError, check_single_installation
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import DEPLOYMENTS
from tests.kubernetes.helm import Manifests, render


def controllers(release: str) -> dict[str, Any]:
    return Manifests(render(release=release)).get("Deployment", f"{release}-cornserve-controller")


async def test_only_the_first_installation_of_a_namespace_runs(kube_client: KubeClient) -> None:
    for release in ("a", "b"):
        manifest = controllers(release)
        manifest["metadata"]["namespace"] = kube_client.namespace
        await kube_client.create(DEPLOYMENTS, manifest)

    await check_single_installation(kube_client, "a", "a-cornserve-controller")
    await check_single_installation(kube_client, "renamed by Argo CD", "a-cornserve-controller")
    with pytest.raises(SecondInstallationError, match="already contains the installation a of Cornserve: uninstall b"):
        await check_single_installation(kube_client, "b", "b-cornserve-controller")

    await kube_client.delete(DEPLOYMENTS, "a-cornserve-controller")
    await check_single_installation(kube_client, "b", "b-cornserve-controller")

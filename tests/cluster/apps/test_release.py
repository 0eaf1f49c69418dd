"""A release from its installation to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.apps.sources import parrot
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.installation import Installation, installation, values
from tests.kubernetes.helm import HelmError
from tests.waiting import until


def objects(installed: Installation) -> set[str]:
    """Returns the objects in the namespace, and the volumes of the cluster that belong to it."""
    kinds = installed.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    listed = [kind for kind in kinds if not kind.startswith(("events", "pods.metrics"))]
    names = installed.kubectl("get", ",".join(listed), "--ignore-not-found", "--output=name").split()
    volumes = installed.cluster.kubectl("get", "persistentvolumes", "--output=name").split()
    return {*names, *(volume for volume in volumes if installed.namespace in volume)}


async def test_a_release_serves_and_leaves_only_its_lease(
    cluster: KubernetesCluster, echo_tag: str, tmp_path: Path
) -> None:
    given = {**values(cluster, echo_tag), "test": {"model": "parrot"}}
    with installation(cluster, given, tmp_path) as release:
        release.apply_app("parrot", {"source": {"inline": parrot("parrot")}})
        release.wait_until_ready("parrot")

        try:
            release.helm("test")
        except HelmError as error:
            pytest.fail(f"{error}: {release.kubectl('logs', 'cornserve-test')}")

        installed = objects(release)
        assert "app.cornserve.ai/parrot" in installed
        release.kubectl("delete", "apps", "--all")
        release.helm("uninstall")
        lease = "lease.coordination.k8s.io/cornserve-controller"
        left = {"configmap/kube-root-ca.crt", "serviceaccount/default", lease}
        await until(lambda: objects(release) == left)

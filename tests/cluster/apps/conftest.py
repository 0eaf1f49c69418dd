from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.conftest import KubernetesCluster
from tests.cluster.installation import Installation, installation, values
from tests.cluster.node_images import loaded_images


@pytest.fixture(scope="session")
def echo_tag(cluster: KubernetesCluster) -> str:
    """The tag of the image with the echo executors, which is on the nodes."""
    return loaded_images(cluster, "echo")


@pytest.fixture(scope="session")
def installed(
    cluster: KubernetesCluster, echo_tag: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """A release with echo executors, which all tests share. Each test has its own apps."""
    with installation(cluster, values(cluster, echo_tag), tmp_path_factory.mktemp("values")) as release:
        yield release


@pytest.fixture
def gateway_url(installed: Installation) -> Iterator[str]:
    with installed.forwarded() as url:
        yield url


@pytest.fixture
def gateway_urls(installed: Installation) -> Iterator[list[str]]:
    """The URLs of both gateways."""
    pods = installed.get("pods", "--selector=app.kubernetes.io/component=gateway")["items"]
    with ExitStack() as stack:
        yield [stack.enter_context(installed.forwarded(f"pod/{pod['metadata']['name']}")) for pod in pods]

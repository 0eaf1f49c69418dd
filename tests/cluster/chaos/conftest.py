from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from scripts.cluster.machines import existing_nodes
from tests.chaos.apps import requests
from tests.chaos.load import ChaosRequest
from tests.chaos.report import FaultRecorder, FaultResult
from tests.cluster.chaos.echo_installation import CLIENTS, RELEASE, EchoInstallation, chart_values
from tests.cluster.chaos.node_faults import shared_directory
from tests.cluster.chaos.retrying_load import RetryingClients
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.node_images import loaded_images

REQUESTS = 40
"""Requests before and after a fault."""
SETTLE_SECONDS = 150.0
"""Maximum time until an installation is as it was before a fault."""
POLL_SECONDS = 0.25

Traffic = Callable[..., AbstractAsyncContextManager[RetryingClients]]


@pytest.fixture(scope="session")
def shared_installation(
    local_cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EchoInstallation]:
    """The release of all chaos tests."""
    name = f"cornserve-chaos-{uuid.uuid4().hex[:8]}"
    memory = Path("/dev/shm") / name
    values = chart_values(loaded_images(local_cluster, "echo"), memory)
    installation = EchoInstallation(local_cluster, name, tmp_path_factory.mktemp("chaos"), values)
    local_cluster.kubectl("create", "namespace", name)
    try:
        local_cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        for node in existing_nodes():
            shared_directory(node, memory).mkdir()
        installation.install()
        yield installation
    finally:
        installation.kubectl("delete", "apps", "--all", "--ignore-not-found", "--timeout=120s")
        installation.helm("uninstall", RELEASE, "--ignore-not-found")
        local_cluster.kubectl("delete", "namespace", name, "--wait=false")
        for node in existing_nodes():
            shutil.rmtree(shared_directory(node, memory), ignore_errors=True)


@pytest.fixture
def installation(shared_installation: EchoInstallation) -> EchoInstallation:
    """The release with the apps `echo` and `twice`, whose responses begin with `a `."""
    shared_installation.deploy("a ")
    return shared_installation


@pytest.fixture
def under_traffic(installation: EchoInstallation, record_fault: FaultRecorder) -> Traffic:
    """Sends requests during a block, which causes a fault, and until the installation is as it was before.

    No request may fail that a client's retries can save. The arguments are the name of the fault, the prefixes of the
    responses or a function that makes the requests, and the number of executors that the fault kills. A dead executor
    ends the streams that it has begun and that no other can continue: at most one of each client.
    """

    @asynccontextmanager
    async def traffic(
        fault: str, *prefixes: str, make: Callable[[int], ChaosRequest] | None = None, killed: int = 0
    ) -> AsyncIterator[RetryingClients]:
        while not (before := await asyncio.to_thread(installation.state)).is_steady:
            await asyncio.sleep(POLL_SECONDS)
        clients = installation.clients(make or requests("a ", *prefixes, seconds=0.2))
        async with clients.running():
            await clients.wait_for_requests(REQUESTS)
            yield clients
            state = before
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    while (state := await asyncio.to_thread(installation.state)) != before:
                        await asyncio.sleep(POLL_SECONDS)
            except TimeoutError as error:
                message = f"after {SETTLE_SECONDS:.0f} s, the installation is {state}, and was {before}"
                raise AssertionError(message) from error
            await clients.wait_for_requests(REQUESTS)
        summary = clients.summary()
        failed = f"{len(summary.failures)} failed, {summary.lost_streams} streams lost"
        outcome = f"{failed}, {summary.retried} sent again, longest {summary.slowest:.1f} s"
        record_fault(FaultResult(fault, 1, requests=summary.requests, outcome=outcome))
        print(f"{fault}: {summary.requests} requests, {outcome}", *clients.repeated(), sep="\n  ")
        assert summary.failures == ()
        assert summary.lost_streams <= killed * CLIENTS

    return traffic

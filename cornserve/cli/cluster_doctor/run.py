"""Runs the checks of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.cli.check_result import CheckResult
from cornserve.cli.cluster_doctor.checks import crd_check, namespace_check, permission_check, version_check
from cornserve.cli.cluster_doctor.facts import ClusterFacts
from cornserve.cli.cluster_doctor.pod_checks import component_check, executor_check, leader_check
from cornserve.cli.cluster_doctor.resource_checks import (
    device_check,
    gpu_check,
    shared_memory_check,
    storage_check,
)
from cornserve.client.cluster.errors import explained_errors
from cornserve.client.cluster.tunnel import FIELD_MANAGER
from cornserve.kubernetes.client import KubeClient


def check_cluster(context: str | None, namespace: str | None) -> Iterator[CheckResult]:
    """Yields the results. A cluster that cannot be reached is the only, failed one."""
    import asyncio

    from cornserve.client.errors import ClusterError

    try:
        facts = asyncio.run(_read(context, namespace))
    except ClusterError as error:
        found, _, remedy = str(error).rpartition(": ")
        yield CheckResult("API server", False, found, remedy, is_essential=True)
        return
    yield version_check(facts)
    yield namespace_check(facts)
    yield crd_check(facts)
    yield permission_check(facts)
    yield component_check(facts, "gateway")
    yield component_check(facts, "controller")
    yield leader_check(facts)
    yield executor_check(facts)
    yield gpu_check(facts)
    yield device_check(facts)
    yield shared_memory_check(facts)
    yield storage_check(facts)


async def _read(context: str | None, namespace: str | None) -> ClusterFacts:
    with explained_errors(context):
        connecting = KubeClient.connect(context=context, namespace=namespace, field_manager=FIELD_MANAGER)
        async with connecting as client:
            return await ClusterFacts.read(client)

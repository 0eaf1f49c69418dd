"""Executors whose pods are ready, but in no EndpointSlice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import GroupKey
from cornserve.control.launcher.kubernetes import KubernetesLauncher, missing_endpoints
from cornserve.control.launcher.kubernetes.missing_endpoints import PATIENCE_SECONDS, MissingEndpoints
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import ENDPOINT_SLICES, PODS, SERVICES
from tests.credentials import CREDENTIALS
from tests.integration.kubernetes.test_endpoint_slices import LABELS, READY, STARTING, endpoint_slice
from tests.integration.kubernetes.test_observed_groups import create_pod, set_ready
from tests.integration.launcher.cluster_site import cluster_settings
from tests.waiting import until

KEY = GroupKey("echo-1")


@asynccontextmanager
async def observing(client: KubeClient) -> AsyncIterator[MissingEndpoints]:
    async with Informer(client, ENDPOINT_SLICES).running() as slices, Informer(client, SERVICES).running() as services:
        yield MissingEndpoints(slices, services)


async def test_ready_pods_that_are_in_a_slice_are_found(kube_client: KubeClient) -> None:
    await kube_client.create(ENDPOINT_SLICES, endpoint_slice("a", STARTING))
    await kube_client.create(ENDPOINT_SLICES, endpoint_slice("b", READY))
    async with observing(kube_client) as endpoints:
        for now in (0.0, PATIENCE_SECONDS):
            assert not endpoints.update({KEY}, now)
        assert endpoints.problems == {}
        assert endpoints.deadline is None


async def test_ready_pods_that_are_in_no_slice_are_a_problem_after_some_seconds(kube_client: KubeClient) -> None:
    await kube_client.create(ENDPOINT_SLICES, endpoint_slice("a", STARTING))
    async with observing(kube_client) as endpoints:
        assert not endpoints.update({KEY}, 10.0)
        assert endpoints.deadline == 10.0 + PATIENCE_SECONDS
        assert endpoints.update({KEY}, 10.0 + PATIENCE_SECONDS)
        assert endpoints.problems == {KEY: "gateways cannot find it, because its Service echo-1 does not exist"}
        assert endpoints.deadline is None
        assert endpoints.update(set(), 20.0)
        assert endpoints.problems == {}


async def test_the_problem_ends_when_a_slice_contains_a_ready_pod(kube_client: KubeClient) -> None:
    service = {"metadata": {"name": KEY}, "spec": {"clusterIP": "None", "ports": [{"port": 9000}]}}
    await kube_client.create(SERVICES, service)
    slices = Informer(kube_client, ENDPOINT_SLICES)
    async with slices.running(), Informer(kube_client, SERVICES).running() as services:
        endpoints = MissingEndpoints(slices, services)
        for now in (0.0, PATIENCE_SECONDS):
            endpoints.update({KEY}, now)
        assert "no EndpointSlice of its Service echo-1 contains a ready pod" in endpoints.problems[KEY]
        changed = slices.next_change()
        await kube_client.create(ENDPOINT_SLICES, endpoint_slice("a", READY))
        await changed.wait()
        assert endpoints.update({KEY}, PATIENCE_SECONDS)
        assert endpoints.problems == {}
        changed = slices.next_change()
        await kube_client.delete(ENDPOINT_SLICES, "a")
        await changed.wait()
        endpoints.update({KEY}, 20.0)
        assert endpoints.deadline == 20.0 + PATIENCE_SECONDS


async def test_replicas_that_gateways_cannot_find_have_a_reason(
    kube_client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_endpoints, "PATIENCE_SECONDS", 0.05)
    settings = cluster_settings(kube_client.namespace, instance="cornserve")
    launcher = KubernetesLauncher(kube_client, settings, lambda: CREDENTIALS)
    await launcher.start()

    def reasons() -> list[tuple[ReplicaState, str]]:
        return [(replica.state, replica.reason) for replica in launcher.replicas()]

    await create_pod(kube_client, "a")
    await kube_client.merge_patch(PODS, "a", {"metadata": {"labels": LABELS}})
    await set_ready(kube_client, "a", "True", 11)
    await until(lambda: reasons() == [(ReplicaState.READY, "NoEndpoints")])
    [replica] = launcher.replicas()
    assert replica.message == "gateways cannot find it, because its Service echo-1 does not exist"
    await kube_client.create(ENDPOINT_SLICES, endpoint_slice("a", READY))
    await until(lambda: reasons() == [(ReplicaState.READY, "")])
    [replica] = launcher.replicas()
    assert replica.message == "loaded in 11 s (load 11 s)"
    await launcher.close()

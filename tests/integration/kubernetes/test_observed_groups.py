"""The replicas of executor groups, from pods whose statuses the test writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import GroupKey
from cornserve.control.launcher.kubernetes.observed_groups import ObservedGroups
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import DEPLOYMENTS, PODS
from tests.waiting import until

KEY = GroupKey("llm-1")


@asynccontextmanager
async def observing(client: KubeClient) -> AsyncIterator[ObservedGroups]:
    async with Informer(client, PODS).running() as pods, Informer(client, DEPLOYMENTS).running() as deployments:
        yield ObservedGroups(pods, deployments)


async def create_pod(client: KubeClient, name: str) -> None:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod_security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "containers": [{"name": "executor", "image": "none", "securityContext": security}],
        "securityContext": pod_security,
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": name, "labels": {"cornserve.ai/executor": KEY}}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def has_state(groups: ObservedGroups, state: ReplicaState) -> bool:
    return [replica.state for replica in groups.replicas()] == [state]


async def set_ready(client: KubeClient, name: str, status: str, second: int) -> None:
    """Writes the status of a pod whose executor has started in second 0."""
    container = {
        "name": "executor",
        "image": "none",
        "imageID": "none",
        "ready": status == "True",
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T10:00:00Z"}},
    }
    ready = {"type": "Ready", "status": status, "lastTransitionTime": f"2026-01-01T10:00:{second:02}Z"}
    change = {"status": {"podIP": "10.0.0.1", "conditions": [ready], "containerStatuses": [container]}}
    await client.merge_patch(PODS, name, change, subresource="status")


async def test_a_replica_that_is_ready_again_keeps_the_seconds_of_its_start(kube_client: KubeClient) -> None:
    await create_pod(kube_client, "a")
    async with observing(kube_client) as groups:
        for status, second, state in (
            ("True", 11, ReplicaState.READY),
            ("False", 30, ReplicaState.STARTING),
            ("True", 40, ReplicaState.READY),
        ):
            await set_ready(kube_client, "a", status, second)
            await until(partial(has_state, groups, state))
        [replica] = groups.replicas()
    assert replica.message == "loaded in 11 s (load 11 s)"


async def test_only_replicas_that_are_wanted_are_expected(kube_client: KubeClient) -> None:
    async with observing(kube_client) as groups:
        groups.set_wanted(KEY, 2)
        assert [replica.id for replica in groups.replicas()] == ["llm-1.new-0", "llm-1.new-1"]
        await create_pod(kube_client, "a")
        await until(lambda: [replica.id for replica in groups.replicas()] == ["a", "llm-1.new-0"])
        await set_ready(kube_client, "a", "False", 1)
        await until(lambda: groups.loading() == {"a": "10.0.0.1:9000"})
        groups.set_wanted(KEY, 0)
        await kube_client.delete(PODS, "a")
        await until(lambda: groups.replicas() == [])
        assert groups.loading() == {}


async def test_refused_pods_are_reported_while_those_that_they_replace_serve(kube_client: KubeClient) -> None:
    labels = {"cornserve.ai/executor": KEY}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "executor", "image": "none"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    await kube_client.create(DEPLOYMENTS, {"metadata": {"name": KEY}, "spec": spec})
    await create_pod(kube_client, "a")
    async with observing(kube_client) as groups:
        groups.set_wanted(KEY, 1)
        assert [replica.id for replica in groups.replicas()] == ["a"]
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
        await kube_client.merge_patch(DEPLOYMENTS, KEY, {"status": {"conditions": [failure]}}, subresource="status")
        await until(lambda: len(groups.replicas()) == 2)
        _, refused = groups.replicas()
        assert (refused.id, refused.reason, refused.message) == ("llm-1.new-0", "FailedCreate", "exceeded quota")

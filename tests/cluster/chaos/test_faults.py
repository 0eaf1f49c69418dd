"""Faults of pods, nodes and the API server under continuous traffic: no request fails that a client's retry can save,
the installation is then as it was before, and nothing is left over.

The full form (CHAOS_FULL=1) has more clients and longer faults.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cornserve.control.launcher.kubernetes.pod_observation import container_status
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL
from scripts.cluster.machines import CONTROL_PLANE, existing_nodes
from tests.chaos.apps import POST, echo, letters
from tests.chaos.form import by_form
from tests.cluster.chaos.conftest import Traffic
from tests.cluster.chaos.echo_installation import EchoInstallation
from tests.cluster.chaos.node_faults import full_memory, kill_processes, node_of, shared_directory, stopped
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300, func_only=True)]

GRACEFUL = ()
FORCED = ("--grace-period=0", "--force")
BOTH_WAYS = pytest.mark.parametrize(
    "options", [pytest.param(GRACEFUL, id="graceful"), pytest.param(FORCED, id="forced", marks=pytest.mark.slow)]
)

API_SERVER_PORT = 6443
KUBELET_PORT = 10250

LIVENESS_SECONDS = 60
"""A container whose liveness probe has failed for this time is restarted."""

OF_THE_RELEASE = "app.kubernetes.io/instance=chaos"
EXECUTORS = "--selector=app.kubernetes.io/component=executor"
OF_EXECUTORS = ("deployment", "service", "poddisruptionbudget", "endpointslice")
"""The kinds of objects of executors: the controller creates them, and Kubernetes the EndpointSlices."""


@BOTH_WAYS
@pytest.mark.parametrize("component", ["executor", "gateway"])
async def test_a_pod_is_deleted(
    installation: EchoInstallation, under_traffic: Traffic, component: str, options: tuple[str, ...]
) -> None:
    killed = int(component == "executor" and options == FORCED)
    async with under_traffic(f"a pod is deleted: {component}{', forced' if options else ''}", killed=killed):
        pod = installation.pods(component)[0]["metadata"]["name"]
        await asyncio.to_thread(installation.kubectl, "delete", "pod", pod, *options)


async def test_an_executor_is_killed(installation: EchoInstallation, under_traffic: Traffic) -> None:
    async with under_traffic("the processes of an executor are killed", killed=1):
        pod = installation.pods("executor")[0]
        kill_processes(pod)
        await until(lambda: asyncio.to_thread(has_restarted, installation, pod["metadata"]["name"]))


def has_restarted(installation: EchoInstallation, pod: str) -> bool:
    (status,) = installation.get("pod", pod)["status"]["containerStatuses"]
    return bool(status["restartCount"])


@BOTH_WAYS
async def test_the_leading_controller_is_deleted(
    installation: EchoInstallation, under_traffic: Traffic, options: tuple[str, ...]
) -> None:
    async with under_traffic(f"the leading controller is deleted{', forced' if options else ''}"):
        leader = installation.leader()
        await asyncio.to_thread(installation.kubectl, "delete", "pod", leader, *options)
        for replicas in (1, 2):
            await asyncio.to_thread(installation.kubectl, "scale", "apps", "--all", f"--replicas={replicas}")
            for app in ("echo", "twice"):
                await asyncio.to_thread(installation.wait_for_replicas, app, replicas)
        assert installation.leader() != leader


async def test_a_node_is_drained(installation: EchoInstallation, under_traffic: Traffic) -> None:
    node = node_of(installation.pods("executor")[0]).name
    options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={OF_THE_RELEASE}", "--timeout=150s")
    try:
        async with under_traffic("a node is drained"):
            await asyncio.to_thread(installation.kubectl, "drain", node, *options)
    finally:
        installation.kubectl("uncordon", node)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("deployment", marks=pytest.mark.slow),
        "service",
        pytest.param("poddisruptionbudget", marks=pytest.mark.slow),
        pytest.param("endpointslice", marks=pytest.mark.slow),
        "approute",
        pytest.param("lease", marks=pytest.mark.slow),
    ],
)
async def test_objects_of_the_controller_are_deleted(
    installation: EchoInstallation, under_traffic: Traffic, kind: str
) -> None:
    """All objects of the kind at once."""
    async with under_traffic(f"all objects are deleted: {kind}"):
        before = owned(installation, kind)
        names = [item["metadata"]["name"] for item in before]
        await asyncio.to_thread(installation.kubectl, "delete", kind, *names)
        uids = {item["metadata"]["uid"] for item in before}

        async def are_restored() -> bool:
            found = await asyncio.to_thread(owned, installation, kind)
            return len(found) == len(before) and not uids & {item["metadata"]["uid"] for item in found}

        await until(are_restored)
        for app in ("echo", "twice"):
            await asyncio.to_thread(installation.wait_for_replicas, app, 2)


def owned(installation: EchoInstallation, kind: str) -> list[JsonObject]:
    """Returns the objects of this kind that belong to executors, to apps or to controllers."""
    selector = [EXECUTORS] if kind in OF_EXECUTORS else []
    found: list[JsonObject] = installation.get(kind, *selector)["items"]
    return found


async def test_executors_are_replaced_after_their_services_were_deleted(
    installation: EchoInstallation, under_traffic: Traffic
) -> None:
    """Gateways find the new executors."""
    async with under_traffic("Services and PodDisruptionBudgets are deleted, then executors replaced") as clients:
        await asyncio.to_thread(installation.kubectl, "delete", "service,poddisruptionbudget", EXECUTORS)
        await asyncio.to_thread(installation.kubectl, "delete", "pod", EXECUTORS)
        await asyncio.to_thread(restart_executors, installation)
        await clients.wait_for_requests(50)


@pytest.mark.slow
async def test_a_kubelet_is_killed(installation: EchoInstallation, under_traffic: Traffic) -> None:
    pod = installation.pods("executor")[0]
    node = node_of(pod)
    async with under_traffic(
        f"a kubelet is killed, and away {by_form(short='for 10 s', full='until it is missed')}"
    ) as clients:
        with stopped(node, "kubelet", KUBELET_PORT):
            if by_form(short=False, full=True):
                unknown = "--for=condition=Ready=Unknown"
                await asyncio.to_thread(installation.kubectl, "wait", unknown, f"node/{node.name}", "--timeout=120s")
            await clients.wait_for_seconds(10)
        ready = "--for=condition=Ready"
        await asyncio.to_thread(installation.kubectl, "wait", ready, f"node/{node.name}", "--timeout=60s")


@pytest.mark.slow
async def test_a_kubelet_restarts_while_a_model_loads(installation: EchoInstallation) -> None:
    """A new kubelet can forget that a container has not started, and then probes its liveness at once."""
    installation.apply("slow", source=echo(name="slow", start_seconds=LIVENESS_SECONDS + 30))
    try:
        await until(lambda: asyncio.to_thread(lambda: bool(running_pods(installation, "slow"))))
        [pod] = running_pods(installation, "slow")
        with stopped(node_of(pod), "kubelet", KUBELET_PORT):
            pass
        timeout = f"--timeout={LIVENESS_SECONDS + 90}s"
        await asyncio.to_thread(installation.kubectl, "wait", "--for=condition=Ready", "app/slow", timeout)
        [loaded] = running_pods(installation, "slow")
        assert loaded["metadata"]["name"] == pod["metadata"]["name"]
        assert not has_restarted(installation, pod["metadata"]["name"])
    finally:
        installation.kubectl("delete", "app", "slow")


def running_pods(installation: EchoInstallation, app: str) -> list[JsonObject]:
    """Returns the pods of an app's only executor whose containers run."""
    executors = installation.get("app", app).get("status", {}).get("executors", [])
    keys = ",".join(executor["key"] for executor in executors)
    pods = installation.get("pods", f"--selector={EXECUTOR_LABEL} in ({keys})")["items"] if keys else []
    return [pod for pod in pods if "running" in container_status(pod).get("state", {})]


async def test_the_api_server_is_stopped(installation: EchoInstallation, under_traffic: Traffic) -> None:
    """An executor dies meanwhile: its kubelet starts it again, and the gateways connect to it again."""
    seconds = by_form(short=10, full=60)
    fault = f"the API server is stopped for {seconds} s, and an executor killed"
    async with under_traffic(fault, killed=1) as clients:
        pod = installation.pods("executor")[0]
        with stopped(CONTROL_PLANE, "kube-apiserver", API_SERVER_PORT):
            await clients.wait_for_seconds(seconds / 2)
            kill_processes(pod)
            await clients.wait_for_seconds(seconds / 2)
        restarted = installation.pods("executor")[0]["metadata"]["name"]
        await until(lambda: asyncio.to_thread(has_restarted, installation, restarted))


@pytest.mark.slow
async def test_the_shared_memory_is_full(installation: EchoInstallation, under_traffic: Traffic) -> None:
    """Executors that start then cannot create their slabs there: others pull their tensors over the network."""
    installation.apply("post", source=POST, replicas=2)
    installation.wait_for_replicas("post", 2)
    memory = Path("/dev/shm") / installation.namespace
    try:
        async with under_traffic("the shared memory is full", make=letters(seconds=0.05, nbytes=1 << 20)) as clients:
            assert slabs(memory)
            with full_memory(memory):
                await asyncio.to_thread(restart_executors, installation)
                await clients.wait_for_requests(50)
                await until(lambda: not slabs(memory))  # Replaced executors end with their slabs.
            await asyncio.to_thread(restart_executors, installation)
            await clients.wait_for_requests(50)
            assert slabs(memory)
    finally:
        installation.kubectl("delete", "app", "post")
    await until(lambda: not slabs(memory))


def restart_executors(installation: EchoInstallation) -> None:
    installation.kubectl("rollout", "restart", "deployment", EXECUTORS)
    installation.kubectl("rollout", "status", "deployment", EXECUTORS, "--timeout=120s")


def slabs(memory: Path) -> list[str]:
    """Returns the files of the nodes in which executors keep their tensors."""
    return [file.name for node in existing_nodes() for file in shared_directory(node, memory).glob("*.slab")]

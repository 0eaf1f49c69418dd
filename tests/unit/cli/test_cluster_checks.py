"""The checks of a cluster, with its state given."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cornserve.cli.cluster_doctor.checks import crd_check, namespace_check, version_check
from cornserve.cli.cluster_doctor.facts import ClusterFacts, Missing
from cornserve.cli.cluster_doctor.pod_checks import component_check, executor_check, leader_check
from cornserve.cli.cluster_doctor.resource_checks import (
    device_check,
    gpu_check,
    shared_memory_check,
    storage_check,
)
from cornserve.kubernetes_resources.crd import app_crd, route_crd

NOTHING = ClusterFacts(
    host="https://kind",
    namespace_name="team-a",
    version="v1.36.3",
    schemas={},
    missing_permissions=[],
    namespace=Missing(),
    pods=[],
    endpoint_slices=None,
    leases=[],
    settings=[],
    claims=[],
    nodes=[],
    storage_classes=[],
)
UNREADABLE = replace(
    NOTHING, namespace=None, pods=None, leases=None, settings=None, claims=None, nodes=None, storage_classes=None
)


def pod(component: str, name: str = "a", *, ready: bool = True, exit_code: int = 0, **state: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app.kubernetes.io/component": component}}
    conditions = [{"type": "Ready", "status": str(ready)}]
    last = {"lastState": {"terminated": {"exitCode": exit_code}}} if exit_code else {}
    return {"metadata": metadata, "status": {"conditions": conditions, "containerStatuses": [{"state": state, **last}]}}


def settings(yaml: str) -> list[dict[str, Any]]:
    return [{"data": {"settings.yaml": yaml}}]


def namespace(level: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}


def lease(holder: str, renewed: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    return {"metadata": {"name": "release-controller"}, "spec": spec}


@pytest.mark.parametrize(("version", "ok"), [("v1.30.0", True), ("v1.29.9", False), ("v2.0.1-eks", True), ("?", False)])
def test_old_versions_of_kubernetes_are_refused(version: str, ok: bool) -> None:
    assert version_check(replace(NOTHING, version=version)).ok is ok


def test_what_may_not_be_read_is_unknown_and_not_a_failure() -> None:
    results = [
        namespace_check(UNREADABLE),
        component_check(UNREADABLE, "gateway"),
        leader_check(UNREADABLE),
        executor_check(UNREADABLE),
        gpu_check(UNREADABLE),
        device_check(UNREADABLE),
        shared_memory_check(UNREADABLE),
        storage_check(UNREADABLE),
    ]
    assert [(result.ok, "you may not" in result.found) for result in results] == [(True, True)] * 8


def test_older_and_missing_crds_are_reported() -> None:
    schemas = {}
    for crd in (app_crd(), route_crd()):
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kind = {"group": "cornserve.ai", "kind": crd["spec"]["names"]["kind"], "version": "v1alpha1"}
        schemas[kind["kind"]] = schema | {"x-kubernetes-group-version-kind": [kind]}
    document = {"components": {"schemas": schemas}}

    assert crd_check(replace(NOTHING, schemas=document)).ok
    del schemas["App"]["properties"]["spec"]["properties"]["model"]
    old, missing = crd_check(replace(NOTHING, schemas=document)), crd_check(NOTHING)

    assert "it lacks spec.model" in old.found
    assert "is not installed" in missing.found
    assert [result.is_essential for result in (old, missing)] == [True, True]


def test_an_image_that_cannot_be_pulled_is_reported_with_a_remedy() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}
    pods = [pod("gateway"), pod("gateway", "b", ready=False, waiting=waiting)]

    some = component_check(replace(NOTHING, pods=pods), "gateway")
    none = component_check(replace(NOTHING, pods=pods[1:]), "gateway")

    assert some.found == '1 of 2 pods ready; b: ImagePullBackOff: Back-off pulling image "x"'
    assert "images.pullSecrets" in some.remedy
    assert [some.ok, some.is_essential, none.is_essential] == [False, False, True]


def test_pods_that_a_node_has_evicted_are_not_missing() -> None:
    evicted = {"metadata": pod("executor", "old")["metadata"], "status": {"phase": "Failed", "reason": "Evicted"}}
    result = executor_check(replace(NOTHING, pods=[evicted, pod("executor")]))

    assert (result.ok, result.found) == (True, "1 of 1 pods ready")


def test_an_executor_that_crashes_is_reported_with_the_commands_that_show_why() -> None:
    crashed = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    executor = pod("executor", "llm-1-x", ready=False, exit_code=3, waiting=crashed)
    result = executor_check(replace(NOTHING, pods=[executor]))

    assert result.found.endswith("llm-1-x: CrashLoopBackOff: its last run ended with status 3")
    assert "kubectl logs llm-1-x -n team-a --previous" in result.remedy
    assert executor_check(NOTHING).found == "none: no app is deployed"


def test_a_lease_that_is_not_renewed_has_no_leader() -> None:
    now = datetime(2026, 11, 22, 12, 0, 40, tzinfo=UTC)
    foreign = {"metadata": {"name": "ingress-controller"}, "spec": {"holderIdentity": "ingress-1"}}
    installed = replace(NOTHING, settings=settings("instance: release"))
    current = leader_check(replace(installed, leases=[foreign, lease("controller-1", "2026-11-22T12:00:30.5Z")]), now)
    old = leader_check(replace(installed, leases=[lease("controller-1", "2026-11-22T12:00:00Z")]), now)
    released = leader_check(replace(installed, leases=[lease("", "2026-11-22T12:00:30Z")]), now)

    assert (current.ok, current.found) == (True, "controller-1")
    assert (old.ok, old.found) == (False, "controller-1 has not renewed its Lease for 40 s")
    assert (released.ok, released.found) == (False, "no controller leads")


def test_gpus_are_counted_and_a_missing_device_plugin_is_found() -> None:
    labeled = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}, "status": {"allocatable": {}}}
    gpus = {"metadata": {}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}

    assert gpu_check(replace(NOTHING, nodes=[gpus, gpus, labeled])).found == "16 nvidia.com/gpu on 2 of 3 nodes"
    broken = gpu_check(replace(NOTHING, nodes=[labeled]))
    assert (broken.ok, broken.is_essential) == (False, False)
    assert broken.found == "1 nodes have GPUs, but none of them offers nvidia.com/gpu"
    amd = {"metadata": {}, "status": {"allocatable": {"amd.com/gpu": "4"}}}
    assert gpu_check(replace(NOTHING, nodes=[amd], settings=settings("gpuResource: amd.com/gpu"))).ok


def test_gpus_are_counted_by_type() -> None:
    def node(type: str, count: int) -> dict[str, Any]:
        return {"metadata": {"labels": {"gpu": type}}, "status": {"allocatable": {"nvidia.com/gpu": str(count)}}}

    nodes = [node("a", 8), node("a", 4), node("b", 1), {"metadata": {"labels": {"gpu": "a"}}, "status": {}}]
    types = "gpuTypes: {a: {nodeSelector: {gpu: a}}, b: {nodeSelector: {gpu: b}}"
    known = gpu_check(replace(NOTHING, nodes=nodes, settings=settings(types + "}")))
    wrong = gpu_check(replace(NOTHING, nodes=nodes, settings=settings(types + ", c: {resource: amd.com/gpu}}")))

    assert (known.ok, known.found) == (True, "13 nvidia.com/gpu on 3 of 4 nodes; a: 12 on 2 nodes; b: 1 on 1 nodes")
    assert (wrong.ok, wrong.is_essential) == (False, False)
    assert wrong.found.endswith("; c: 0 on 0 nodes")
    assert wrong.remedy == "correct the resource or the nodeSelector of c in the value executors.gpuTypes"


@pytest.mark.parametrize(
    ("yaml", "ok", "found"),
    [
        ("{}", True, "executors request only GPUs"),
        ("gpu: {resources: {limits: {rdma/hca: 1, memory: 8Gi}}}", True, "1 of 2 nodes have rdma/hca"),
        ("cpu: {resources: {limits: {rdma/hca: 1}}}", True, "1 of 2 nodes have rdma/hca"),
        (
            "gpu: {resources: {limits: {rdma/hca: 1, rdma/other: 1}}}",
            False,
            "1 of 2 nodes have rdma/hca; 0 of 2 nodes have rdma/other",
        ),
    ],
)
def test_nodes_must_have_the_devices_that_executors_request(yaml: str, ok: bool, found: str) -> None:
    device: dict[str, Any] = {"metadata": {}, "status": {"allocatable": {"rdma/hca": "1k"}}}
    nodes = [device, {"metadata": {}, "status": {}}]

    result = device_check(replace(NOTHING, nodes=nodes, settings=settings(yaml)))

    assert (result.ok, result.is_essential, result.found) == (ok, False, found)


def test_shared_memory_must_be_bound_and_allowed() -> None:
    claimed = replace(NOTHING, settings=settings("sharedMemory: {type: persistentVolumeClaim, claimName: shm}"))
    host_path = settings("sharedMemory: {type: hostPath, path: /dev/shm/cornserve}")
    bound = {"metadata": {"name": "shm"}, "status": {"phase": "Bound"}}

    missing = shared_memory_check(claimed)
    assert (missing.ok, missing.found) == (False, "PersistentVolumeClaim shm: missing")
    assert shared_memory_check(replace(claimed, claims=[bound])).ok
    refused = shared_memory_check(replace(NOTHING, settings=host_path, namespace=namespace("baseline")))
    assert (refused.is_essential, refused.found.startswith("Pod Security baseline refuses")) == (True, True)
    assert shared_memory_check(replace(NOTHING, settings=host_path, namespace=namespace("privileged"))).ok


def test_an_installation_for_cpus_without_shared_memory_and_storage_classes_is_correct() -> None:
    facts = replace(
        NOTHING,
        nodes=[{"metadata": {}, "status": {"allocatable": {"cpu": "4"}}}],
        settings=settings("{usesGpus: false, sharedMemory: {type: none}}"),
    )
    results = [gpu_check(facts), shared_memory_check(facts), storage_check(facts)]

    assert [result.ok for result in results] == [True, True, True]
    assert [result.found.partition(":")[0] for result in results] == [
        "not used",
        "not shared",
        "no default StorageClass",
    ]
    with_gpus = gpu_check(replace(facts, settings=settings("usesGpus: true")))
    assert (with_gpus.ok, with_gpus.found) == (False, "no node has nvidia.com/gpu")


def test_claims_must_be_bound() -> None:
    default = {"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}
    pending = {"metadata": {"name": "models"}, "status": {"phase": "Pending"}}

    assert storage_check(replace(NOTHING, storage_classes=[default])).found == "default StorageClass fast"
    waiting = storage_check(replace(NOTHING, storage_classes=[default], claims=[pending]))
    assert (waiting.ok, waiting.found) == (False, "not bound: models")


def test_a_claim_that_is_bound_with_its_first_pod_may_wait_for_it() -> None:
    late = {"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"}
    unused: dict[str, Any] = {
        "metadata": {"name": "models"},
        "spec": {"storageClassName": "local"},
        "status": {"phase": "Pending"},
    }
    used = unused | {"metadata": {"name": "models", "annotations": {"volume.kubernetes.io/selected-node": "a"}}}

    assert storage_check(replace(NOTHING, storage_classes=[late], claims=[unused])).ok
    assert storage_check(replace(NOTHING, storage_classes=[late], claims=[used])).found == "not bound: models"

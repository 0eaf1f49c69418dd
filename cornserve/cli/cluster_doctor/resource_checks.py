"""Checks of GPUs and other devices, shared memory and storage."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from cornserve.cli.check_result import CheckResult
from cornserve.cli.cluster_doctor.checks import pod_security
from cornserve.cli.cluster_doctor.facts import ClusterFacts
from cornserve.kubernetes.resources import JsonObject

GPU_RESOURCE = "nvidia.com/gpu"
GPU_NODE_LABEL = "nvidia.com/gpu.present"

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation of a claim that a pod on this node waits for."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"

SETTINGS_FILE = "settings.yaml"
"""The key of the ConfigMap with the cluster settings."""


def gpu_check(facts: ClusterFacts) -> CheckResult:
    if facts.nodes is None:
        return CheckResult("GPUs", True, "unknown: you may not list nodes")
    settings = cluster_settings(facts)
    if not settings.get("usesGpus", True):
        return CheckResult("GPUs", True, "not used: the value executors.device is cpu")
    resource = str(settings.get("gpuResource", GPU_RESOURCE))
    types = {
        name: _count_gpus(facts.nodes, type.get("resource", resource), type.get("nodeSelector", {}))
        for name, type in sorted((settings.get("gpuTypes") or {}).items())
    }
    count = _count_gpus(facts.nodes, resource)
    if count.gpus or any(count.gpus for count in types.values()):
        total = f"{count.gpus} {resource} on {count.nodes} of {len(facts.nodes)} nodes"
        listed = [f"{name}: {count.gpus} on {count.nodes} nodes" for name, count in types.items()]
        absent = [name for name, count in types.items() if not count.gpus]
        remedy = f"correct the resource or the nodeSelector of {', '.join(absent)} in the value executors.gpuTypes"
        return CheckResult("GPUs", not absent, "; ".join([total, *listed]), remedy)
    labeled = [node for node in facts.nodes if node["metadata"].get("labels", {}).get(GPU_NODE_LABEL) == "true"]
    found = f"no node has {resource}"
    if labeled:
        found = f"{len(labeled)} nodes have GPUs, but none of them offers {resource}"
    return CheckResult(
        "GPUs", False, found, "install the device plugin of the GPUs, such as NVIDIA's GPU operator, on the GPU nodes"
    )


class _GpuCount(NamedTuple):
    gpus: int
    nodes: int


def _count_gpus(nodes: list[JsonObject], resource: str, labels: Mapping[str, str] | None = None) -> _GpuCount:
    """Counts the GPUs of the nodes that have the labels, and those of these nodes that have GPUs."""
    counts = [
        int((node.get("status") or {}).get("allocatable", {}).get(resource, 0))
        for node in nodes
        if (labels or {}).items() <= node["metadata"].get("labels", {}).items()
    ]
    return _GpuCount(sum(counts), sum(map(bool, counts)))


def device_check(facts: ClusterFacts) -> CheckResult:
    """Checks the devices that executors request in addition to GPUs, such as those of networks with RDMA."""
    if facts.nodes is None:
        return CheckResult("devices", True, "unknown: you may not list nodes")
    settings = cluster_settings(facts)
    limits = [((settings.get(pods) or {}).get("resources") or {}).get("limits") or {} for pods in ("cpu", "gpu")]
    names = sorted({name for limit in limits for name in limit if "/" in name})
    if not names:
        return CheckResult("devices", True, "executors request only GPUs")
    allocatable = [(node.get("status") or {}).get("allocatable", {}) for node in facts.nodes]
    counts = {name: sum(devices.get(name, "0") != "0" for devices in allocatable) for name in names}
    return CheckResult(
        "devices",
        all(counts.values()),
        "; ".join(f"{count} of {len(facts.nodes)} nodes have {name}" for name, count in counts.items()),
        "install the device plugin of the devices, or correct the limits in the value executors.gpu.resources",
    )


def shared_memory_check(facts: ClusterFacts) -> CheckResult:
    memory = cluster_settings(facts).get("sharedMemory") or {}
    match memory.get("type"):
        case None:
            return CheckResult("memory", True, "unknown: you may not read the settings of the installation")
        case "persistentVolumeClaim":
            return _claim_check(facts, memory["claimName"])
        case "hostPath" if pod_security(facts.namespace) != "privileged":
            remedy = "set the value executors.sharedMemory.type to persistentVolumeClaim or none"
            found = f"Pod Security {pod_security(facts.namespace)} refuses the hostPath volume {memory['path']}"
            return CheckResult("memory", False, found, remedy, is_essential=True)
        case "hostPath":
            return CheckResult("memory", True, f"the directory {memory['path']} of each node")
    found = "not shared: executors exchange tensors over the network, see the value executors.sharedMemory.type"
    return CheckResult("memory", True, found)


def _claim_check(facts: ClusterFacts, name: str) -> CheckResult:
    if facts.claims is None:
        return CheckResult("memory", True, f"unknown: you may not read the PersistentVolumeClaim {name}")
    claim = next((claim for claim in facts.claims if claim["metadata"]["name"] == name), None)
    phase = (claim.get("status") or {}).get("phase", "Pending") if claim else "missing"
    return CheckResult(
        "memory",
        phase == "Bound",
        f"PersistentVolumeClaim {name}: {phase}",
        f"executors do not start until it is bound: see `kubectl describe pvc {name} -n {facts.namespace_name}`",
        is_essential=True,
    )


def storage_check(facts: ClusterFacts) -> CheckResult:
    late = {item["metadata"]["name"] for item in facts.storage_classes or () if _binds_late(item)}
    pending = [claim["metadata"]["name"] for claim in facts.claims or () if _is_pending(claim, late)]
    if pending:
        remedy = f"see `kubectl describe pvc {pending[0]} -n {facts.namespace_name}`"
        return CheckResult("storage", False, f"not bound: {', '.join(pending)}", remedy)
    if facts.storage_classes is None:
        return CheckResult("storage", True, "unknown: you may not list StorageClasses")
    default = [item["metadata"]["name"] for item in facts.storage_classes if _is_default(item)]
    if not default:
        found = "no default StorageClass: PersistentVolumeClaims have to name a StorageClass or a volume"
        return CheckResult("storage", True, found)
    return CheckResult("storage", True, f"default StorageClass {default[0]}")


def cluster_settings(facts: ClusterFacts) -> Mapping[str, Any]:
    """Returns the settings of the controller, or nothing if they cannot be read."""
    import yaml

    for config_map in facts.settings or ():
        content = (config_map.get("data") or {}).get(SETTINGS_FILE)
        if content is not None and isinstance(settings := yaml.safe_load(content), dict):
            return settings
    return {}


def _is_pending(claim: JsonObject, late: Set[str]) -> bool:
    """Whether pods may wait for a claim. A claim of a class that binds late has no volume before its first pod."""
    is_unused = claim.get("spec", {}).get("storageClassName") in late and SELECTED_NODE not in (
        claim["metadata"].get("annotations") or {}
    )
    return (claim.get("status") or {}).get("phase") != "Bound" and not is_unused


def _binds_late(storage_class: JsonObject) -> bool:
    return storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _is_default(storage_class: JsonObject) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"

"""The pod template of an executor group, which Pod Security `restricted` admits."""

from __future__ import annotations

from cornserve.control.launcher.base import ExecutorCell, ExecutorGroup
from cornserve.control.launcher.kubernetes.devices import group_device
from cornserve.control.launcher.kubernetes.model_storage import (
    storage_environment,
    storage_mounts,
    storage_volumes,
    with_model_path,
)
from cornserve.control.launcher.kubernetes.names import (
    CELL_LABEL,
    CONTAINER,
    DOWNLOAD_CONTAINER,
    HEALTH_PORT,
    HOME_DIR,
    INVOCATION_PORT,
    INVOCATION_PORT_NAME,
    METRICS_PORT,
    PRIVATE_SHARED_MEMORY,
    SECRET_DIR,
    SHARED_MEMORY,
    TLS_DIR,
    UCX_PORTS,
    USER,
)
from cornserve.control.launcher.kubernetes.settings import (
    ClaimedSharedMemory,
    ClusterSettings,
    HostPathSharedMemory,
    NoSharedMemory,
)
from cornserve.kubernetes.resources import JsonObject
from cornserve.limits import Limits
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.pull_protocol import PullProtocol
from cornserve.wire.health_services import LIVENESS_SERVICE

STOP_SECONDS = 30
"""Time for an executor to free its resources after the drain."""
SECRET_MODE = 0o440
STARTUP_PERIOD_SECONDS = 2

_CONTAINER_SECURITY: JsonObject = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def render_pod(group: ExecutorGroup, labels: JsonObject, settings: ClusterSettings) -> JsonObject:
    """Returns the launcher's own pod template, without the user's changes."""
    device = group_device(group, settings)
    return {
        "metadata": {"labels": labels, "annotations": settings.pod_annotations},
        "spec": _present(
            {
                "serviceAccountName": settings.service_account_name,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "fsGroup": USER,
                    "fsGroupChangePolicy": "OnRootMismatch",
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "terminationGracePeriodSeconds": settings.drain_seconds + STOP_SECONDS,
                "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
                "priorityClassName": settings.priority_class_name,
                "schedulerName": settings.scheduler_name,
                "nodeSelector": device.node_selector,
                "tolerations": device.tolerations,
                "affinity": _affinity(group.cell, settings),
                "schedulingGroup": _scheduling_group(group.cell, settings),
                "initContainers": _downloads(group, settings),
                "containers": [_executor(group, settings)],
                "volumes": _volumes(group, settings),
            }
        ),
    }


def _present(fields: JsonObject) -> JsonObject:
    """Leaves out empty fields, which the API server would not store."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _executor(group: ExecutorGroup, settings: ClusterSettings) -> JsonObject:
    return {
        "name": CONTAINER,
        **_program(group, settings),
        "command": ["python", "-P", "-m", "cornserve_executors.base"],
        "args": _arguments(group, settings),
        "env": [*_environment(), *_ucx_environment(settings), *storage_environment(group.pod.storage)],
        "ports": [
            {"name": INVOCATION_PORT_NAME, "containerPort": INVOCATION_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "resources": _present(group_device(group, settings).resources.model_dump()),
        "startupProbe": _probe(STARTUP_PERIOD_SECONDS, -(-settings.start_seconds // STARTUP_PERIOD_SECONDS)),
        "readinessProbe": _probe(period_seconds=5, failure_threshold=2),
        "livenessProbe": _probe(period_seconds=10, failure_threshold=6, service=LIVENESS_SERVICE),
        "volumeMounts": [
            *_common_mounts(),
            *_process_mounts(settings),
            *storage_mounts(group.pod.storage),
        ],
    }


def _program(group: ExecutorGroup, settings: ClusterSettings) -> JsonObject:
    return {
        "image": group_device(group, settings).image,
        "imagePullPolicy": settings.image_pull_policy,
        "securityContext": _CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _arguments(group: ExecutorGroup, settings: ClusterSettings) -> list[str]:
    limits = Limits.parse(settings.limits)
    is_slab_limited = any(setting.startswith("slab-mib=") for setting in settings.limits)
    has_shared_memory = not isinstance(settings.shared_memory, NoSharedMemory)
    return [
        *("--spec", with_model_path(group.spec, group.pod.storage).model_dump_json()),
        *("--listen", f"0.0.0.0:{INVOCATION_PORT}"),
        *("--health-port", str(HEALTH_PORT), "--metrics-port", str(METRICS_PORT)),
        *("--secret", str(SECRET_DIR / "secret")),
        *(("--tls", str(TLS_DIR)) if settings.tls_secret_name else ()),
        *(part for network in settings.peer_networks for part in ("--peer-network", str(network))),
        *("--shared-memory", str(SHARED_MEMORY if has_shared_memory else PRIVATE_SHARED_MEMORY)),
        *("--transport", settings.transport),
        # By default, the executor derives it from the memory of its pod.
        *(("--slab-mib", str(limits.slab_mib)) if is_slab_limited else ()),
        *("--queue", str(limits.queue)),
        *("--drain-seconds", str(settings.drain_seconds)),
    ]


def _environment() -> list[JsonObject]:
    return [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "HOME", "value": str(HOME_DIR)},
        {"name": REPLICA_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]


def _ucx_environment(settings: ClusterSettings) -> list[JsonObject]:
    """Returns the ports that the NetworkPolicies of the chart permit."""
    if settings.transport is not PullProtocol.UCX:
        return []
    return [{"name": "UCX_TCP_PORT_RANGE", "value": f"{UCX_PORTS[0]}-{UCX_PORTS[-1]}"}]


def _probe(period_seconds: int, failure_threshold: int, service: str = "") -> JsonObject:
    return {
        "grpc": {"port": HEALTH_PORT, "service": service},
        "periodSeconds": period_seconds,
        "failureThreshold": failure_threshold,
        "timeoutSeconds": 5,
    }


def _affinity(cell: ExecutorCell | None, settings: ClusterSettings) -> JsonObject:
    if cell is None:
        return {}
    term = {"labelSelector": {"matchLabels": {CELL_LABEL: cell.name}}, "topologyKey": settings.topology_key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _scheduling_group(cell: ExecutorCell | None, settings: ClusterSettings) -> JsonObject:
    return {"podGroupName": cell.name} if cell is not None and settings.cell_placement == "PodGroup" else {}


def _downloads(group: ExecutorGroup, settings: ClusterSettings) -> list[JsonObject]:
    """Returns the container that downloads the model into the cache. Concurrent downloads wait for each other."""
    storage = group.pod.storage
    if storage is None or storage.download is None:
        return []
    return [
        {
            "name": DOWNLOAD_CONTAINER,
            **_program(group, settings),
            "command": ["python", "-P", "-m", "cornserve_executors.download"],
            "args": ["--spec", group.spec.model_dump_json()],
            "env": [*_environment(), *storage_environment(storage, downloads=True)],
            "volumeMounts": [*_common_mounts(), *storage_mounts(storage, downloads=True)],
        }
    ]


def with_download_resources(template: JsonObject) -> JsonObject:
    """Gives the download the CPU and the memory of the executor, unless it has its own resources.

    Quotas may require them, and the pod needs no more: containers that run one after the other share the largest.
    """
    spec = template["spec"]
    resources = next(each.get("resources") for each in spec["containers"] if each["name"] == CONTAINER)
    shared = {
        field: {name: amount for name, amount in amounts.items() if "/" not in name}  # without devices
        for field, amounts in (resources.items() if isinstance(resources, dict) else ())
        if isinstance(amounts, dict)
    }
    containers = [
        {"resources": _present(shared), **each} if each["name"] == DOWNLOAD_CONTAINER else each
        for each in spec.get("initContainers") or ()
    ]
    return {**template, "spec": {**spec, "initContainers": containers}} if containers else template


def _common_mounts() -> list[JsonObject]:
    return [{"name": "tmp", "mountPath": "/tmp"}, {"name": "home", "mountPath": str(HOME_DIR)}]


def _process_mounts(settings: ClusterSettings) -> list[JsonObject]:
    mounts: list[JsonObject] = [
        {"name": "secret", "mountPath": str(SECRET_DIR), "readOnly": True},
        {"name": "private-shared-memory", "mountPath": str(PRIVATE_SHARED_MEMORY)},
    ]
    if settings.tls_secret_name:
        mounts.append({"name": "tls", "mountPath": str(TLS_DIR), "readOnly": True})
    if not isinstance(settings.shared_memory, NoSharedMemory):
        mounts.append({"name": "shared-memory", "mountPath": str(SHARED_MEMORY)})
    return mounts


def _volumes(group: ExecutorGroup, settings: ClusterSettings) -> list[JsonObject]:
    memory = {"medium": "Memory", "sizeLimit": settings.private_shared_memory}
    volumes: list[JsonObject] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "home", "emptyDir": {}},
        {"name": "private-shared-memory", "emptyDir": memory},
        _secret_volume("secret", settings.secret_name),
    ]
    if settings.tls_secret_name:
        volumes.append(_secret_volume("tls", settings.tls_secret_name))
    match settings.shared_memory:
        case ClaimedSharedMemory(claim_name=name):
            volumes.append({"name": "shared-memory", "persistentVolumeClaim": {"claimName": name}})
        case HostPathSharedMemory(path=path):
            volumes.append({"name": "shared-memory", "hostPath": {"path": path, "type": "Directory"}})
        case NoSharedMemory():
            pass
    return volumes + storage_volumes(group.pod.storage)


def _secret_volume(name: str, secret_name: str) -> JsonObject:
    return {"name": name, "secret": {"secretName": secret_name, "defaultMode": SECRET_MODE}}

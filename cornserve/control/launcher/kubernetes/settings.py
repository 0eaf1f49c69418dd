"""The settings of the executors of a cluster, which the installation gives to the controller."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from cornserve.app.settings import AbsolutePath, GpuTypeName, ObjectName
from cornserve.limits import LimitError, Limits
from cornserve.pull_protocol import PullProtocol
from cornserve.task.spec import ExecutorSpec
from cornserve.validation_errors import describe_all

_QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
Quantity = Annotated[str, Field(pattern=_QUANTITY, coerce_numbers_to_str=True)]
"""An amount as Kubernetes writes it, such as `1Gi`, `500m` or 2."""


class ClusterSettingsError(ValueError):
    """The file with the settings cannot be used. The message is for users."""


class _ClusterModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class NoSharedMemory(_ClusterModel):
    """Executors share no memory: they pull tensors over the network."""

    type: Literal["none"] = "none"


class ClaimedSharedMemory(_ClusterModel):
    """A PersistentVolumeClaim of a `local` PersistentVolume whose path is a directory in the memory of each node.

    All executors of a namespace use one claim. The node affinity of its volume has to match every node that runs
    executors, and the access mode has to be ReadWriteMany: the kubelet of each node mounts its own directory.
    """

    type: Literal["persistentVolumeClaim"]
    claim_name: ObjectName


class HostPathSharedMemory(_ClusterModel):
    """A directory in the memory of each node, where Pod Security allows hostPath volumes."""

    type: Literal["hostPath"]
    path: AbsolutePath


SharedMemory = Annotated[NoSharedMemory | ClaimedSharedMemory | HostPathSharedMemory, Field(discriminator="type")]


class Resources(_ClusterModel):
    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class DeviceSettings(_ClusterModel):
    """The pods of executors with or without GPUs."""

    image: str = Field(min_length=1)
    resources: Resources = Resources()
    """Without GPUs: the launcher adds those of the executor."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[dict[str, JsonValue]] = Field(default_factory=list)
    max_surge: int = Field(default=1, ge=0)
    """Pods above the desired number while an upgrade of the image replaces pods. 0 needs no spare GPUs."""
    max_unavailable: int = Field(default=0, ge=0)
    """Pods below the desired number while an upgrade of the image replaces pods."""

    @model_validator(mode="after")
    def _makes_progress(self) -> Self:
        if not self.max_surge and not self.max_unavailable:
            raise ValueError("maxSurge and maxUnavailable are both 0: no pod could be replaced: set one of them to 1")
        return self


class GpuTypeSettings(_ClusterModel):
    """The nodes with GPUs of one type."""

    resource: str | None = Field(default=None, min_length=1)
    """The resource that the device plugin advertises. By default, that of all GPUs."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """The labels of the nodes."""
    tolerations: list[dict[str, JsonValue]] = Field(default_factory=list)
    """Tolerations of the nodes' taints."""


def _valid_limits(limits: list[str]) -> list[str]:
    try:
        Limits.parse(limits)
    except LimitError as error:
        raise ValueError(str(error)) from error
    return limits


class ClusterSettings(_ClusterModel):
    """The settings of one installation, which runs executors in one namespace."""

    instance: str = Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63)
    """The label `app.kubernetes.io/instance`."""
    url: str = ""
    """The URL of the gateways' API in the cluster, which the status of apps shows."""
    controller_name: ObjectName | None = None
    """The Deployment of the controllers. It owns the objects of the installation that controllers create."""
    version: str = "dev"
    """The label `app.kubernetes.io/version`. It does not restart executors."""
    cpu: DeviceSettings
    """Executors without GPUs."""
    gpu: DeviceSettings
    """Executors with GPUs."""
    uses_gpus: bool = True
    """Without, executors that would have GPUs run on CPUs, as on a machine without GPUs."""
    gpu_resource: str = "nvidia.com/gpu"
    gpu_types: dict[GpuTypeName, GpuTypeSettings] = Field(default_factory=dict)
    """The types of GPUs that executors can ask for, by name."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: list[ObjectName] = Field(default_factory=list)
    secret_name: ObjectName
    """The Secret whose key `secret` all processes of the installation share."""
    tls_secret_name: ObjectName | None = None
    """The Secret with `tls.crt`, `tls.key` and `ca.crt`. Without it, connections are not encrypted."""
    service_account_name: ObjectName = "default"
    """Executors receive no token of it."""
    shared_memory: SharedMemory = NoSharedMemory()
    private_shared_memory: Quantity = "1Gi"
    """The size of `/dev/shm` of a pod, which engines use between their own processes."""
    topology_key: str = "kubernetes.io/hostname"
    """The node label whose value all pods of a cell share."""
    cell_placement: Literal["Affinity", "PodGroup"] = "Affinity"
    """`Affinity`: the scheduler places one pod after the other. `PodGroup`: it places all pods of a cell or none."""
    cell_patience_seconds: float = Field(default=60, gt=0)
    """After this time with a member that fits nowhere, the other members of a cell release their nodes."""
    priority_class_name: ObjectName | None = None
    scheduler_name: str | None = None
    pod_labels: dict[str, str] = Field(default_factory=dict)
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    peer_networks: list[IPv4Network | IPv6Network] = Field(
        default=[IPv4Network("0.0.0.0/0"), IPv6Network("::/0")], min_length=1
    )
    """The networks of pods, from which executors accept the endpoints of other executors."""
    transport: PullProtocol = PullProtocol.AUTO
    """The protocol for tensors of other nodes."""
    start_seconds: int = Field(default=3600, ge=10)
    """Time to load a model. A container that is not ready in time is restarted."""
    drain_seconds: int = Field(default=600, ge=0)
    """Time for which an executor that ends serves its connected callers."""
    profiler_pod: dict[str, Any] = Field(default_factory=dict)
    """The template of the pods that measure the options of apps."""
    limits: Annotated[list[str], AfterValidator(_valid_limits)] = Field(default_factory=list)
    """Limits of executors as `NAME=VALUE`."""

    def gpus(self, spec: ExecutorSpec) -> int:
        """Returns the number of GPUs of a pod of an executor."""
        return spec.gpus if self.uses_gpus else 0

    @classmethod
    def load(cls, file: Path) -> Self:
        """Reads a YAML file. Raises `ClusterSettingsError` if it is missing or not valid."""
        try:
            content: Any = yaml.safe_load(file.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise ClusterSettingsError(f"cannot read the cluster settings {file}: {error}") from error
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise ClusterSettingsError(
                f"the cluster settings {file} are not valid: {describe_all(error.errors())}"
            ) from error

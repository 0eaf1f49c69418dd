"""The device of an executor group: CPUs, GPUs, or GPUs of one type."""

from __future__ import annotations

from cornserve.app.record import FailureReason
from cornserve.control.launcher.base import ExecutorGroup, GroupRefusedError
from cornserve.control.launcher.kubernetes.settings import ClusterSettings, DeviceSettings, GpuTypeSettings


def group_device(group: ExecutorGroup, settings: ClusterSettings) -> DeviceSettings:
    """Returns the settings of a group's pods. Their resources include the GPUs.

    Raises `GroupRefusedError` if the group names an unknown type of GPUs, also if its pods run on CPUs.
    """
    gpu_type = _gpu_type(group, settings)
    count = settings.gpus(group.spec)
    if not count:
        return settings.cpu
    device = settings.gpu
    gpus = {gpu_type.resource or settings.gpu_resource: str(count)}
    return device.model_copy(
        update={
            "node_selector": device.node_selector | gpu_type.node_selector,
            "tolerations": [*device.tolerations, *gpu_type.tolerations],
            "resources": device.resources.model_copy(
                update={"requests": device.resources.requests | gpus, "limits": device.resources.limits | gpus}
            ),
        }
    )


def _gpu_type(group: ExecutorGroup, settings: ClusterSettings) -> GpuTypeSettings:
    name = group.pod.gpu_type
    if name is None:
        return GpuTypeSettings()
    if name not in settings.gpu_types:
        known = ", ".join(sorted(settings.gpu_types)) or "none"
        raise GroupRefusedError(
            f"executors: gpuType {name!r} of {group.spec.executor} is unknown (known: {known}): choose a known type, "
            "or add it to the value executors.gpuTypes of the chart",
            FailureReason.UNKNOWN_GPU_TYPE,
        )
    return settings.gpu_types[name]

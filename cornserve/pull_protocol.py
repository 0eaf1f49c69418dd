"""The protocols by which executors copy tensors from other nodes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class PullProtocol(StrEnum):
    AUTO = "auto"
    """The best protocol for the network devices of both nodes."""
    TCP = "tcp"
    UCX = "ucx"


def rdma_devices() -> list[str]:
    """Returns the network devices for RDMA that this process may use. In a pod, a device plug-in mounts them."""
    return sorted(path.name for path in Path("/dev/infiniband").glob("uverbs*"))

"""Why a replica is not ready, as a reason of the conditions of its app."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ReplicaReason(StrEnum):
    SCHEDULING = "Scheduling"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    CELL_UNPLACEABLE = "CellUnplaceable"
    FAILED_CREATE = "FailedCreate"
    PULLING_IMAGE = "PullingImage"
    IMAGE_PULL = "ImagePull"
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    DOWNLOADING_MODEL = "DownloadingModel"
    DOWNLOAD_FAILED = "DownloadFailed"
    LOADING_MODEL = "LoadingModel"
    CRASH_LOOP = "CrashLoop"
    NO_ENDPOINTS = "NoEndpoints"
    """The replica is ready, but gateways cannot find it."""


OBSTACLES: Final = frozenset(
    {
        ReplicaReason.INSUFFICIENT_CAPACITY,
        ReplicaReason.VOLUME_UNAVAILABLE,
        ReplicaReason.CELL_UNPLACEABLE,
        ReplicaReason.FAILED_CREATE,
        ReplicaReason.IMAGE_PULL,
        ReplicaReason.CREATE_CONTAINER_ERROR,
        ReplicaReason.DOWNLOAD_FAILED,
        ReplicaReason.NO_ENDPOINTS,
    }
)
"""Reasons of replicas that will probably not serve until something else changes: the app is degraded."""

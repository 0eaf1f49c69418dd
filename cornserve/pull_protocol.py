"""The protocols by which executors copy tensors from other nodes."""

from __future__ import annotations

from enum import StrEnum


class PullProtocol(StrEnum):
    AUTO = "auto"
    """The best protocol for the network devices of both nodes."""
    TCP = "tcp"
    UCX = "ucx"

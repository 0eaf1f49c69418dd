"""The part of an app that its running requests use."""

from __future__ import annotations

from typing import Protocol

from cornserve.app_host.app_host import AppHost
from cornserve.app_host.description import AppDescription
from cornserve.v1 import app_host_pb2 as pb


class HostProvider(Protocol):
    """Provides the hosts of an app."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> AppDescription: ...

    async def host(self) -> AppHost:
        """Returns the running host. Starts a host if none is running. Raises a 503 if it does not start."""

    def replace(self, host: AppHost, error: pb.HostError) -> None:
        """Ends a host whose memory or threads are exhausted."""

    def end_session(self, number: int, host: AppHost | None) -> None:
        """Frees the part of the host that belongs to a request."""

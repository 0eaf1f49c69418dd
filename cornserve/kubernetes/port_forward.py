"""A connection to a port of a pod through the API server and the kubelet: `kubectl port-forward` over a websocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cornserve.kubernetes.transport import KubeTransport

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

PROTOCOL = "v4.channel.k8s.io"
"""The websocket protocol: the first byte of each message is its channel, and its first message is the port."""

DATA, ERROR = 0, 1
"""The channels of the first port."""


class PodPortError(Exception):
    """The kubelet has not reached the port of a pod, or has lost the connection."""

    @property
    def is_refused(self) -> bool:
        """Whether the pod did not accept the connection, so that it has not received anything."""
        return any(text in str(self) for text in _REFUSED)


_REFUSED = ("connection refused", "not found")


class PodPortConnection:
    """A connection to a port of a pod.

    Args:
        socket: an open websocket of the pod's subresource `portforward`.
    """

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._opened: set[int] = set()

    async def send(self, data: bytes) -> None:
        await self._socket.send_bytes(bytes((DATA,)) + data)

    async def receive(self) -> bytes:
        """Returns the next bytes, or no bytes at the end. Raises `PodPortError` with the kubelet's message."""
        from aiohttp import WSMsgType

        while True:
            message = await self._socket.receive()
            if message.type is not WSMsgType.BINARY:
                return b""
            channel, data = message.data[0], message.data[1:]
            if channel not in self._opened:
                self._opened.add(channel)
            elif channel == ERROR and data:
                raise PodPortError(data.decode(errors="replace").strip())
            elif channel == DATA and data:
                return bytes(data)


@asynccontextmanager
async def open_pod_port(transport: KubeTransport, path: str, port: int) -> AsyncIterator[PodPortConnection]:
    """Connects to a port of a pod until the end of the block. Raises `KubeApiError`.

    Args:
        path: the path of the pod's subresource `portforward`.
    """
    async with transport.open_websocket(path, parameters={"ports": str(port)}, protocol=PROTOCOL) as socket:
        yield PodPortConnection(socket)

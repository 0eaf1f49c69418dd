"""Forwards the connections of a tunnel to a gateway pod."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

from pydantic_core import to_json

from cornserve.client.cluster.errors import explain
from cornserve.client.cluster.gateway_service import GatewayPod, GatewayService
from cornserve.client.errors import CLUSTER_UNREACHABLE, ClusterError
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError
from cornserve.kubernetes.port_forward import PodPortConnection, PodPortError

CHUNK_BYTES = 65536

END_SECONDS = 2.0
"""Time in which a client closes its connection after the error response to a request that cannot be forwarded."""


class Forwarding:
    """Forwards connections to one gateway pod, so that a client sees its own changes, and to another if it is gone.

    A client whose connection cannot be forwarded gets an error response of HTTP with the reason.

    Args:
        context: the selected context of the kubeconfig, or None for the current one.
    """

    def __init__(self, client: KubeClient, service: GatewayService, pod: GatewayPod, context: str | None) -> None:
        self._client = client
        self._service = service
        self._pod: GatewayPod | None = pod
        self._context = context
        self._connections: set[asyncio.Task[None]] = set()

    def run(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Forwards a connection."""
        task = asyncio.create_task(self._run(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def close(self) -> None:
        """Ends all connections."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _run(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._forward(reader, writer)
        except ConnectionError:
            pass  # The client has gone.
        except KubeApiError as error:
            self._pod = None
            await _respond(reader, writer, explain(error, self._context))
        except ClusterError as error:
            await _respond(reader, writer, error)
        finally:
            writer.close()

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        pod = self._pod = self._pod or await self._service.ready_pod()
        async with self._client.connect_pod_port(pod.name, pod.port) as connection:
            sending = asyncio.create_task(_send(reader, connection))
            receiving = asyncio.create_task(_receive(connection, writer))
            try:
                await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, receiving):
                    task.cancel()
                results = await asyncio.gather(sending, receiving, return_exceptions=True)
        for result in results:
            if isinstance(result, PodPortError) and result.is_refused:
                self._pod = None
                raise ClusterError(f"the gateway pod {pod.name} cannot be reached: {result}") from result


async def _send(reader: StreamReader, connection: PodPortConnection) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await connection.send(data)


async def _receive(connection: PodPortConnection, writer: StreamWriter) -> None:
    while data := await connection.receive():
        writer.write(data)
        await writer.drain()


async def _respond(reader: StreamReader, writer: StreamWriter, error: ClusterError) -> None:
    """Sends an error response, and reads the request, which would otherwise reset the connection."""
    body = to_json({"error": {"message": str(error), "type": CLUSTER_UNREACHABLE, "code": CLUSTER_UNREACHABLE}})
    head = (
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with suppress(ConnectionError, TimeoutError):
        writer.write(head.encode() + body)
        await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(END_SECONDS):
            while await reader.read(CHUNK_BYTES):
                pass

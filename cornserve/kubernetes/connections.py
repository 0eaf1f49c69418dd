"""Connections to the API server, which are closed completely."""

from __future__ import annotations

from ssl import SSLContext
from typing import TYPE_CHECKING

from aiohttp import TCPConnector
from kubernetes.aio.client.rest import RESTClientObject

if TYPE_CHECKING:
    from asyncio import Future, Transport

    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


class ApiServerConnector(TCPConnector):
    """Aborts its connections when it is closed.

    aiohttp forgets a connection once it has asked the server to end the TLS session. If the event loop ended before the
    server's response, the socket would stay open.

    Args:
        limit: the maximum number of connections, 0 for any number.
    """

    def __init__(self, ssl: SSLContext, *, limit: int) -> None:
        super().__init__(ssl=ssl, limit=limit)
        self._transports: dict[ResponseHandler, Transport] = {}

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        connection = await super().connect(req, traces, timeout)
        for protocol in [protocol for protocol in self._transports if _is_closed(protocol)]:
            del self._transports[protocol]
        if connection.protocol is not None and connection.transport is not None:
            if connection.protocol not in self._transports and (closed := connection.protocol.closed) is not None:
                closed.add_done_callback(_retrieve_error)
            self._transports[connection.protocol] = connection.transport
        return connection

    async def close(self, *, abort_ssl: bool = False) -> None:
        await super().close(abort_ssl=abort_ssl)
        for transport in self._transports.values():
            transport.abort()
        self._transports.clear()


def _retrieve_error(closed: Future[None]) -> None:
    """Reads the error of a connection that has ended, which asyncio would log otherwise."""
    if not closed.cancelled():
        closed.exception()


def _is_closed(protocol: ResponseHandler) -> bool:
    return protocol.closed is None or protocol.closed.done()


class ApiServerClient(RESTClientObject):  # type: ignore[misc]
    """The generated client's pool of connections."""

    def _create_connector(self) -> TCPConnector:
        return ApiServerConnector(self.ssl_context, limit=self.maxsize)

"""A TCP proxy in front of an API server, with which tests interrupt the connections of one client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from tests.kubernetes.api_server import ApiServer


class ApiServerProxy:
    def __init__(self, api_server: ApiServer) -> None:
        self._api_server = api_server
        self._server: asyncio.Server | None = None
        self._port = 0
        self._forwards: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0
        """Number of connections since the start."""

    @classmethod
    @asynccontextmanager
    async def start(cls, api_server: ApiServer) -> AsyncIterator[Self]:
        proxy = cls(api_server)
        await proxy.resume()
        try:
            yield proxy
        finally:
            await proxy.stop()

    async def resume(self) -> None:
        """Accepts connections, again on the same port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes all connections and refuses others, like an API server that has ended."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.sleep(0.01)  # The event loop calls `_accept` for connections that it has accepted.
        await self.drop_connections()

    async def drop_connections(self) -> None:
        """Closes all connections."""
        forwards = self._forwards.copy()
        for task, writers in forwards.items():
            task.cancel()
            for writer in writers:
                writer.transport.abort()
        await asyncio.gather(*forwards, return_exceptions=True)

    def silence(self) -> None:
        """Keeps all connections open and forwards nothing, like a network that drops packets."""
        self._flowing.clear()

    def write_kubeconfig(self, file: Path, namespace: str) -> Path:
        """Writes the administrator's kubeconfig with the address of the proxy."""
        files = replace(self._api_server.files, port=self._port)
        files.write_kubeconfig(file, files.admin_token, namespace)
        return file

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()
            return
        self.connections += 1
        files = self._api_server.files
        task = asyncio.current_task()
        assert task is not None
        writers = self._forwards[task] = [writer]
        # A cancelled task would be an error of the server, which would not close the connection.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                upstream_reader, upstream_writer = await asyncio.open_connection(files.address, files.port)
                writers.append(upstream_writer)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(reader, upstream_writer))
                    group.create_task(self._forward(upstream_reader, writer))
            finally:
                del self._forwards[task]
                for each in writers:
                    each.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(65536):
                await self._flowing.wait()
                writer.write(content)
                await writer.drain()
            writer.close()

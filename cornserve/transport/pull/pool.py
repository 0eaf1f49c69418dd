"""Connections to producers that are used again.

Connecting is a task of the pool: it continues when the pull that waits for it is cancelled, and the next pull uses the
connection. Otherwise, no tensor would arrive if connecting takes longer than the tensors live.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from functools import partial
from typing import Any, Generic, Protocol, TypeVar


class PooledConnection(Protocol):
    @property
    def is_closed(self) -> bool: ...

    def abort(self) -> None: ...


Connection = TypeVar("Connection", bound=PooledConnection)


class ConnectionPool(Generic[Connection]):
    """Args:
    connect: opens a connection to the producer.
    """

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, Connection]]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._connecting: list[asyncio.Task[Connection]] = []
        """Tasks for which no pull waits any more."""
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yields an exclusive connection, and reuses it later unless the block fails."""
        connection = self._pop_idle() or await self._new_connection()
        try:
            yield connection
        except BaseException:
            connection.abort()
            raise
        if self._is_closed:
            connection.abort()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Closes idle connections now, and other connections after use."""
        self._is_closed = True
        for connecting in self._connecting:
            connecting.cancel()
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def wait_closed(self) -> None:
        """Waits after `close` until no task connects."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    async def _new_connection(self) -> Connection:
        if self._connecting and not self._is_closed:
            connecting = self._connecting.pop()
        else:
            connecting = asyncio.create_task(self._connect(), context=Context())
            connecting.add_done_callback(self._on_connected)
        try:
            await asyncio.wait((connecting,))
        except asyncio.CancelledError:
            self._connecting.append(connecting)
            if connecting.done():
                self._on_connected(connecting)
            elif self._is_closed:
                connecting.cancel()
            raise
        return connecting.result()

    def _on_connected(self, connecting: asyncio.Task[Connection]) -> None:
        if connecting not in self._connecting:
            return  # A pull waits for it.
        self._connecting.remove(connecting)
        if connecting.cancelled() or connecting.exception() is not None:
            return
        if self._is_closed:
            connecting.result().abort()
        else:
            self._idle.append(connecting.result())

    def _pop_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
        return None


class ConnectionPools(Generic[Connection]):
    """The pools of all producers.

    Args:
        connect: opens a connection to the producer at an endpoint.
    """

    def __init__(self, connect: Callable[[str], Coroutine[Any, Any, Connection]]) -> None:
        self._connect = connect
        self._pools: dict[str, ConnectionPool[Connection]] = {}

    def connection(self, endpoint: str) -> AbstractAsyncContextManager[Connection]:
        """See `ConnectionPool.connection`."""
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._pools[endpoint] = ConnectionPool(partial(self._connect, endpoint))
        return pool.connection()

    def disconnect(self, endpoint: str) -> None:
        if pool := self._pools.pop(endpoint, None):
            pool.close()

    async def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
            await pool.wait_closed()
        self._pools.clear()

"""Pulls tensors over TCP.

The consumer sends a request. The producer sends the bytes from its slab, and one byte that reports whether the memory
still belonged to the tensor at the end. It closes the connection if the tensor has been freed before. `sendfile` is not
usable: it sends the content that pages have after the call has returned.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Final

from cornserve.transport.errors import LostError
from cornserve.transport.pull.puller import PullRequest, PullSource
from cornserve.wire import sockets

log = logging.getLogger(__name__)

PULLS_PER_PRODUCER: Final = 4
"""Concurrent pulls from one producer. More would share the same network link."""

_ACCEPT_PAUSE: Final = 0.1
"""Seconds to wait after a failed accept. A descriptor may be available then."""

_REQUEST = struct.Struct("<16sQQQ")
_PORT = struct.Struct("<H")
_VALID, _FREED = b"\1", b"\0"

_Address = tuple[str, int]


class TcpPuller:
    name = "tcp"

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._pools: dict[_Address, _ConnectionPool] = {}

    async def listen(self, host: str, find: Callable[[PullRequest], PullSource | None]) -> bytes:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), 0), family=family, backlog=128)
        listener.setblocking(False)
        self._start(self._accept_all(listener, find))
        return _PORT.pack(listener.getsockname()[1])

    async def pull(self, host: str, address: bytes, request: PullRequest, into: memoryview) -> None:
        producer = _address(host, address)
        async with self._pools.setdefault(producer, _ConnectionPool(producer)).connection() as connection:
            loop = asyncio.get_running_loop()
            header = _REQUEST.pack(request.token, request.offset, request.nbytes, request.generation)
            await loop.sock_sendall(connection, header)
            if not await _receive(connection, into):
                raise LostError("its producer has closed the connection: the memory is freed, or the process has ended")
            status = memoryview(bytearray(1))
            if not await _receive(connection, status) or status != _VALID:
                raise LostError("its memory was freed during the pull")

    def disconnect(self, host: str, address: bytes) -> None:
        if pool := self._pools.pop(_address(host, address), None):
            pool.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    async def _accept_all(self, listener: socket.socket, find: Callable[[PullRequest], PullSource | None]) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # no descriptor is left, or the client has disconnected
                    log.warning("cannot accept a connection for a pull: %s", error)
                    await asyncio.sleep(_ACCEPT_PAUSE)
                else:
                    self._start(_serve(connection, find))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _ConnectionPool:
    """Connections to one producer."""

    def __init__(self, address: _Address) -> None:
        self._address = address
        self._limit = asyncio.Semaphore(PULLS_PER_PRODUCER)
        self._idle: list[socket.socket] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[socket.socket]:
        """Yields an exclusive connection, and reuses it later unless the block fails."""
        async with self._limit:
            connection = self._idle.pop() if self._idle else await _connect(self._address)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            if self._is_closed:
                connection.close()
            else:
                self._idle.append(connection)

    def close(self) -> None:
        """Closes idle connections now, and other connections after use."""
        self._is_closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _address(host: str, address: bytes) -> _Address:
    (port,) = _PORT.unpack(address)
    return host.strip("[]"), port


async def _serve(connection: socket.socket, find: Callable[[PullRequest], PullSource | None]) -> None:
    loop = asyncio.get_running_loop()
    request = memoryview(bytearray(_REQUEST.size))
    with connection, suppress(OSError):
        _configure(connection)
        while await _receive(connection, request):
            source = find(PullRequest(*_REQUEST.unpack(request)))
            if source is None:
                return
            await loop.sock_sendall(connection, source.view)
            await loop.sock_sendall(connection, _VALID if source.is_current() else _FREED)


async def _connect(address: _Address) -> socket.socket:
    loop = asyncio.get_running_loop()
    host, port = address
    family, kind, protocol, _, resolved = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    connection = socket.socket(family, kind, protocol)
    try:
        _configure(connection)
        await loop.sock_connect(connection, resolved)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: socket.socket) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sockets.enable_keepalive(connection)


async def _receive(connection: socket.socket, into: memoryview) -> bool:
    """Fills `into`. Returns False if the other end closes the connection first."""
    loop = asyncio.get_running_loop()
    position = 0
    while position < len(into):
        received = await loop.sock_recv_into(connection, into[position:])
        if not received:
            return False
        position += received
    return True

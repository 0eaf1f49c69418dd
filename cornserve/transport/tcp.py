"""Pulls over plain TCP, which every network has.

The consumer sends which piece it wants. The producer sends it from its slab, and adds whether it still was that piece
at the end; if it has it no more, it hangs up. (`sendfile` would not do: it sends what pages hold after it returned.)
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
from cornserve.transport.puller import Export, Piece
from cornserve.wire import sockets

log = logging.getLogger(__name__)

PULLS_PER_PRODUCER: Final = 4
"""At once. More would only share the same line."""

_ACCEPT_PAUSE: Final = 0.1
"""Seconds after a connection could not be taken: there may be a descriptor for it then."""

_REQUEST = struct.Struct("<16sQQQ")
_PORT = struct.Struct("<H")
_VALID, _FREED = b"\1", b"\0"

_Address = tuple[str, int]


class TcpPuller:
    name = "tcp"

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._pools: dict[_Address, _Pool] = {}

    async def open(self, host: str, find: Callable[[Piece], Export | None]) -> bytes:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), 0), family=family, backlog=128)
        listener.setblocking(False)
        self._own(self._listen(listener, find))
        return _PORT.pack(listener.getsockname()[1])

    async def pull(self, host: str, address: bytes, piece: Piece, into: memoryview) -> None:
        producer = _address(host, address)
        async with self._pools.setdefault(producer, _Pool(producer)).connection() as connection:
            loop = asyncio.get_running_loop()
            request = _REQUEST.pack(piece.token, piece.offset, piece.nbytes, piece.generation)
            await loop.sock_sendall(connection, request)
            if not await _receive(connection, into):
                raise LostError("its producer has hung up: the memory has been freed, or the process has ended")
            verdict = memoryview(bytearray(1))
            if not await _receive(connection, verdict) or verdict != _VALID:
                raise LostError("its memory has been freed while it was pulled")

    def forget(self, host: str, address: bytes) -> None:
        if pool := self._pools.pop(_address(host, address), None):
            pool.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    async def _listen(self, listener: socket.socket, find: Callable[[Piece], Export | None]) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # no descriptor is left, or whoever came has gone
                    log.warning("cannot take a connection over which a tensor is to be pulled: %s", error)
                    await asyncio.sleep(_ACCEPT_PAUSE)
                else:
                    self._own(_serve(connection, find))

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Pool:
    """The connections to one producer."""

    def __init__(self, address: _Address) -> None:
        self._address = address
        self._turns = asyncio.Semaphore(PULLS_PER_PRODUCER)
        self._idle: list[socket.socket] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[socket.socket]:
        """One that is used by nobody else, and can be used again unless the block fails."""
        async with self._turns:
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
        """Nothing is kept any more; who uses a connection may go on."""
        self._is_closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _address(host: str, address: bytes) -> _Address:
    (port,) = _PORT.unpack(address)
    return host.strip("[]"), port


async def _serve(connection: socket.socket, find: Callable[[Piece], Export | None]) -> None:
    loop = asyncio.get_running_loop()
    request = memoryview(bytearray(_REQUEST.size))
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.enable_keepalive(connection)
        while await _receive(connection, request):
            export = find(Piece(*_REQUEST.unpack(request)))
            if export is None:
                return
            await loop.sock_sendall(connection, export.view)
            await loop.sock_sendall(connection, _VALID if export.is_current() else _FREED)


async def _connect(address: _Address) -> socket.socket:
    loop = asyncio.get_running_loop()
    host, port = address
    family, kind, protocol, _, resolved = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.enable_keepalive(connection)
        await loop.sock_connect(connection, resolved)
    except BaseException:
        connection.close()
        raise
    return connection


async def _receive(connection: socket.socket, into: memoryview) -> bool:
    """Whether all of it came."""
    loop = asyncio.get_running_loop()
    position = 0
    while position < len(into):
        received = await loop.sock_recv_into(connection, into[position:])
        if not received:
            return False
        position += received
    return True

"""Pulls tensors over TCP connections to the producer's endpoint.

The consumer sends the capability of a tensor. The producer sends the bytes from its slab, and one byte that reports
whether the memory still belonged to the tensor at the end. It closes the connection if the tensor has been freed
before. `sendfile` is not usable: it sends the content that pages have after the call has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cornserve.transport.errors import LostError
from cornserve.transport.pull.puller import FindSource
from cornserve.transport.pull.tcp_protocols import PullReceiver, PullSender, SendingLimit
from cornserve.wire import handshake
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories

PREAMBLE: Final = b"cornserve.v1.Pull/1\n"

PULLS_PER_PRODUCER: Final = 4
"""Concurrent pulls from one producer. More would share the same network link."""


class TcpPuller:
    name = "tcp"

    def __init__(self, credentials: ConnectionCredentials) -> None:
        self._credentials = credentials
        self._senders: set[PullSender] = set()
        self._limit = SendingLimit()
        self._pools: dict[str, _ConnectionPool] = {}

    def serve(self, find: FindSource) -> ConnectionFactories:
        def create() -> PullSender:
            sender = PullSender(find, self._limit, self._senders.discard)
            self._senders.add(sender)
            return sender

        return {PREAMBLE: create}

    async def pull(self, endpoint: str, capability: bytes, into: memoryview) -> None:
        pool = self._pools.setdefault(endpoint, _ConnectionPool(endpoint, self._credentials))
        async with pool.connection() as receiver:
            if not await receiver.receive(capability, into):
                raise LostError("its memory was freed during the pull")

    def disconnect(self, endpoint: str) -> None:
        if pool := self._pools.pop(endpoint, None):
            pool.close()

    async def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        for sender in list(self._senders):
            sender.abort()
        while self._senders:
            await next(iter(self._senders)).closed.wait()


class _ConnectionPool:
    """Connections to one producer."""

    def __init__(self, endpoint: str, credentials: ConnectionCredentials) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._limit = asyncio.Semaphore(PULLS_PER_PRODUCER)
        self._idle: list[PullReceiver] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PullReceiver]:
        """Yields an exclusive connection, and reuses it later unless the block fails."""
        async with self._limit:
            receiver = self._pop_idle() or await self._connect()
            try:
                yield receiver
            except BaseException:
                receiver.abort()
                raise
            if self._is_closed:
                receiver.abort()
            else:
                self._idle.append(receiver)

    def close(self) -> None:
        """Closes idle connections now, and other connections after use."""
        self._is_closed = True
        for receiver in self._idle:
            receiver.abort()
        self._idle.clear()

    def _pop_idle(self) -> PullReceiver | None:
        while self._idle:
            receiver = self._idle.pop()
            if not receiver.is_closed:
                return receiver
        return None

    async def _connect(self) -> PullReceiver:
        receiver = PullReceiver()
        await handshake.open_connection(self._endpoint, PREAMBLE, receiver, self._credentials)
        return receiver

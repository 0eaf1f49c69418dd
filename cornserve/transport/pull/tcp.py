"""Pulls tensors over TCP connections to the producer's endpoint.

The consumer sends the capability of a tensor. The producer sends the bytes from its slab, and one byte that reports
whether the memory still belonged to the tensor at the end. It closes the connection if the tensor has been freed
before. `sendfile` is not usable: it sends the content that pages have after the call has returned.
"""

from __future__ import annotations

from typing import Final

from cornserve.pull_protocol import PullProtocol
from cornserve.transport.errors import LostError
from cornserve.transport.pull.pool import ConnectionPools
from cornserve.transport.pull.puller import FindSource, PullTarget
from cornserve.transport.pull.tcp_protocols import PullReceiver, PullSender, SendingLimit
from cornserve.wire import handshake
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories

PREAMBLE: Final = b"cornserve.v1.Pull/1\n"


class TcpPuller:
    protocol: PullProtocol = PullProtocol.TCP

    def __init__(self, credentials: ConnectionCredentials) -> None:
        self._credentials = credentials
        self._senders: set[PullSender] = set()
        self._limit = SendingLimit()
        self._pools = ConnectionPools(self._connect)

    def serve(self, find: FindSource) -> ConnectionFactories:
        def create() -> PullSender:
            sender = PullSender(find, self._limit, self._senders.discard)
            self._senders.add(sender)
            return sender

        return {PREAMBLE: create}

    async def pull(self, endpoint: str, capability: bytes, into: PullTarget) -> None:
        async with self._pools.connection(endpoint) as receiver:
            if not await receiver.receive(capability, into.view):
                raise LostError("its memory was freed during the pull")

    def disconnect(self, endpoint: str) -> None:
        self._pools.disconnect(endpoint)

    async def close(self) -> None:
        await self._pools.close()
        for sender in list(self._senders):
            sender.abort()
        while self._senders:
            await next(iter(self._senders)).closed.wait()

    async def _connect(self, endpoint: str) -> PullReceiver:
        receiver = PullReceiver()
        await handshake.open_connection(endpoint, PREAMBLE, receiver, self._credentials)
        return receiver

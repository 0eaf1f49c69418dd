"""Pulls tensors with a library for RDMA networks. See `fabric.py`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cornserve.transport.errors import LostError
from cornserve.transport.pull.fabric import MAX_MESSAGE_BYTES, Fabric, preamble
from cornserve.transport.pull.fabric_ends import FabricReceiver, FabricSender
from cornserve.transport.pull.pool import ConnectionPools
from cornserve.transport.pull.puller import FindSource
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories

MAX_SERVED: Final = 1024
"""Connections over which a process serves. The one that has not pulled for longest is closed for a further one."""

CANCEL_SECONDS: Final = 1.0
"""Time that a cancelled pull has to complete, before its connection ends. A new one takes longer than most copies."""


class FabricPuller:
    """Args:
    fabric: the library. The puller closes it.
    """

    def __init__(self, fabric: Fabric, credentials: ConnectionCredentials) -> None:
        self.protocol = fabric.protocol
        self._fabric = fabric
        self._credentials = credentials
        self._pools = ConnectionPools(self._connect)
        self._senders: dict[FabricSender, None] = {}
        """The senders with an open connection. The one that has not pulled for longest is the first."""
        self._closing: set[asyncio.Task[None]] = set()
        """Ends of senders."""

    def serve(self, find: FindSource) -> ConnectionFactories:
        codec: Codec[pb.FabricEvent, pb.FabricCommand] = Codec(
            preamble(self._fabric), pb.FabricCommand, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        )

        def create() -> MessageConnection[pb.FabricEvent, pb.FabricCommand]:
            sender = FabricSender(self._fabric, codec, find, self._record_use)
            self._closing.add(sender.closing)
            sender.closing.add_done_callback(self._closing.discard)
            sender.closing.add_done_callback(lambda _: self._senders.pop(sender, None))
            self._record_use(sender)
            if len(self._senders) > MAX_SERVED:
                oldest = next(iter(self._senders))
                del self._senders[oldest]
                oldest.connection.abort("too many consumers pull from this process")
            return sender.connection

        return {codec.preamble: create}

    async def pull(self, endpoint: str, capability: bytes, into: memoryview) -> None:
        is_cancelled = False
        try:
            async with self._pools.connection(endpoint) as receiver:
                receiving = asyncio.create_task(receiver.receive(capability, into))
                is_cancelled = await _wait_ended(receiving)
                problem = receiving.result()
        finally:
            if is_cancelled:
                raise asyncio.CancelledError
        if problem:
            raise LostError(problem)

    def disconnect(self, endpoint: str) -> None:
        self._pools.disconnect(endpoint)

    async def close(self) -> None:
        await self._pools.close()
        for sender in self._senders:
            sender.connection.abort("this process ends")
        await asyncio.gather(*self._closing)
        await self._fabric.close()

    async def _connect(self, endpoint: str) -> FabricReceiver:
        return await FabricReceiver.connect(self._fabric, endpoint, self._credentials)

    def _record_use(self, sender: FabricSender) -> None:
        self._senders.pop(sender, None)
        self._senders[sender] = None


async def _wait_ended(work: asyncio.Task[Any]) -> bool:
    """Waits until the task has ended, and returns whether the caller was cancelled meanwhile.

    The task of a cancelled caller may complete, and is cancelled if this takes longer than `CANCEL_SECONDS`.
    """
    is_cancelled = False
    while not work.done():
        try:
            _, late = await asyncio.wait((work,), timeout=CANCEL_SECONDS if is_cancelled else None)
            for task in late:
                task.cancel()
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled

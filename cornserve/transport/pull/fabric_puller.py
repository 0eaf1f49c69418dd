"""Pulls tensors with a library for RDMA networks. See `fabric.py`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cornserve.transport.errors import LostError
from cornserve.transport.pull.fabric import MAX_MESSAGE_BYTES, Fabric, preamble
from cornserve.transport.pull.fabric_ends import FabricReceiver, FabricSender, pull_seconds
from cornserve.transport.pull.pool import ConnectionPools
from cornserve.transport.pull.puller import FindSource, HungPullError, PullTarget
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories

MAX_SERVED: Final = 1024
"""Connections over which a process serves. The one that has not pulled for longest is closed for a further one."""

CANCEL_SECONDS: Final = 1.0
"""Time that a cancelled pull has to complete, before its connection ends. A new one takes longer than most copies."""

HANG_SECONDS: Final = 10.0
"""Time that the library has to end a pull. Its calls take less than a second, also those that register memory."""


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

    async def pull(self, endpoint: str, capability: bytes, into: PullTarget) -> None:
        """Holds the memory until the library has ended the pull, which may be later if the library hangs."""
        seconds, is_cancelled = pull_seconds(into.view.nbytes), False
        try:
            async with self._pools.connection(endpoint) as receiver:
                receiving = asyncio.create_task(receiver.receive(capability, into.view))
                end_hold = into.hold_memory()
                receiving.add_done_callback(lambda _: end_hold())
                is_cancelled = await _wait(receiving, seconds)
                if not receiving.done():
                    receiving.cancel()
                    is_cancelled |= await _wait(receiving, HANG_SECONDS)
                if not receiving.done():
                    raise HungPullError(f"{self.protocol} has not ended a pull that failed {HANG_SECONDS:g} s ago")
                if receiving.cancelled():
                    raise TimeoutError(f"the tensor has not arrived within {seconds:g} s")
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


async def _wait(work: asyncio.Task[Any], seconds: float) -> bool:
    """Waits until the task ends, for this time at most. Returns whether the caller was cancelled meanwhile.

    A cancelled caller waits for `CANCEL_SECONDS` more at most.
    """
    loop = asyncio.get_running_loop()
    deadline, is_cancelled = loop.time() + seconds, False
    while not work.done() and loop.time() < deadline:
        try:
            await asyncio.wait((work,), timeout=deadline - loop.time())
        except asyncio.CancelledError:
            is_cancelled, deadline = True, min(deadline, loop.time() + CANCEL_SECONDS)
    return is_cancelled

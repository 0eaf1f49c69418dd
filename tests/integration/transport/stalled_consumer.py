"""A process that pulls a tensor and stops reading in the middle, until it gets a line of input.

Prints a line when it has the first bytes, and at the end a JSON object: how often each byte is in the tensor's memory.
Bytes that have not arrived are 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cornserve.pull_protocol import PullProtocol
from cornserve.transport.pull.fabric import MAX_MESSAGE_BYTES, check_address, preamble, with_checksum
from cornserve.transport.pull.tcp import PREAMBLE
from cornserve.transport.pull.ucx import UcxFabric
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire import handshake, sockets
from cornserve.wire.codec import Codec
from cornserve.wire.connection import MessageConnection
from tests.credentials import CREDENTIALS

MIB = 1 << 20
TAG = 7
QUIET_SECONDS = 1.0

Resume = Callable[[], Awaitable[object]]
"""Receives bytes until the producer ends the connection, or sends no more."""


async def begin_tcp(endpoint: str, capability: bytes, into: memoryview) -> Resume:
    connection = await sockets.connect(endpoint)
    await handshake.connect(connection, PREAMBLE, CREDENTIALS)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, capability)
    received = await loop.sock_recv_into(connection, into[:1])

    async def resume() -> None:
        nonlocal received
        with suppress(ConnectionResetError):
            while part := await loop.sock_recv_into(connection, into[received:]):
                received += part

    return resume


async def begin_ucx(endpoint: str, capability: bytes, into: memoryview) -> Resume:
    """Receives by calls of ucxx, because `UcxLink` does not stop."""
    fabric = await UcxFabric.start()
    worker = fabric.ucxx.UCXWorker(fabric.context, enable_delayed_submission=False, enable_python_future=False)
    events: asyncio.Queue[pb.FabricEvent | None] = asyncio.Queue()
    codec: Codec[pb.FabricCommand, pb.FabricEvent] = Codec(
        preamble(fabric), pb.FabricEvent, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
    )
    connection = MessageConnection(codec, events.put_nowait)
    await connection.connect(endpoint, CREDENTIALS)
    connection.send(pb.FabricCommand(address=with_checksum(bytes(memoryview(worker.address)))))
    connected = await events.get()
    assert connected is not None
    peer = fabric.ucxx.UCXAddress.create_from_buffer(check_address(connected.address))
    ucx_endpoint = fabric.ucxx.UCXEndpoint.create_from_worker_address(worker, peer, True)
    connection.send(pb.FabricCommand(pull=pb.FabricPull(capability=capability, tag=TAG)))
    request = ucx_endpoint.tag_recv(fabric.array(into), fabric.ucxx.UCXXTag(TAG))
    while not into[0]:
        worker.progress_once()
        await asyncio.sleep(0)

    async def resume() -> object:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while not request.completed and loop.time() - last < QUIET_SECONDS:
            if worker.progress_once():
                last = loop.time()
            await asyncio.sleep(0)
        return connection  # keeps it open until now

    return resume


async def main(protocol: PullProtocol, endpoint: str, capability: bytes, nbytes: int) -> None:
    into = memoryview(bytearray(nbytes))
    begin = begin_ucx if protocol is PullProtocol.UCX else begin_tcp
    resume = await begin(endpoint, capability, into)
    print(json.dumps("stalled"), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await resume()
    print(json.dumps({str(value): count for value, count in Counter(into).items()}), flush=True)
    os._exit(0)  # the destructors of ucxx wait for the other end


if __name__ == "__main__":
    protocol, endpoint, capability, nbytes = sys.argv[1:]
    asyncio.run(main(PullProtocol(protocol), endpoint, bytes.fromhex(capability), int(nbytes)))

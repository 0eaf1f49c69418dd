"""A process with a secret: `member.py ENDPOINT SECRET DIRECTORY`. Writes a note at an executor, reads its tensor, and
prints it, or the error."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cornserve.transport import TensorId, Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.credentials import ConnectionCredentials
from tests.executor_caller import calling

MIB = 1 << 20


async def main(endpoint: str, credentials: ConnectionCredentials, directory: Path) -> str:
    async with calling(endpoint, credentials) as caller:
        start = pb.Start(request_id="member", request=b'{"text": "news from afar"}', arrived_us=1)
        caller.send(pb.Command(call=1, start=start))
        event = await caller.read()
        assert event is not None
        assert event.end.code == pb.CODE_OK, event.end.message
        transport = Transport(directory, credentials, slab_bytes=MIB, request_bytes=MIB)
        try:
            async with transport.consume(TensorId(endpoint, "member", 0, 0, "note")) as tensor:
                return bytes(tensor.view).decode()
        finally:
            await transport.stop()


if __name__ == "__main__":
    endpoint, secret, directory = sys.argv[1:]
    try:
        print(asyncio.run(main(endpoint, ConnectionCredentials.load(Path(secret)), Path(directory))))
    except OSError as error:
        print(f"{type(error).__name__}: {error}")

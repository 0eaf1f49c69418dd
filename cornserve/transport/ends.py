"""The two sides of a line over which one process consumes what another produces, and how each notices that the other
hangs: both say all the time that they live, which a system does not do for a process that stands still."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.connection import Codec, MessageConnection, Sent

_PREAMBLE = b"cornserve.v1.Transfer\n"

BEATS_PER_LEASE: Final = 4

CONSUMER: Final[Codec[pb.TransferCommand, pb.TransferEvent]] = Codec(_PREAMBLE, pb.TransferEvent)
PRODUCER: Final[Codec[pb.TransferEvent, pb.TransferCommand]] = Codec(_PREAMBLE, pb.TransferCommand)


async def silence(line: MessageConnection[Sent, Any], alive: Sent, beat_seconds: float, beats: int) -> None:
    """Says at each beat that we live, and returns when the other end has said nothing for so many of them.

    It is beats that are counted, and not the time, so that a process that stood still does not blame the other.
    """
    silent = 0
    while silent < beats:
        heard = line.read_count
        line.send(alive)
        await asyncio.sleep(beat_seconds)
        silent = silent + 1 if line.read_count == heard else 0

"""The two ends of a connection between a producing and a consuming process."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.connection import Codec

_PREAMBLE = b"cornserve.v1.Transfer/2\n"

CONSUMER_CODEC: Final[Codec[pb.TransferCommand, pb.TransferEvent]] = Codec(_PREAMBLE, pb.TransferEvent)
PRODUCER_CODEC: Final[Codec[pb.TransferEvent, pb.TransferCommand]] = Codec(_PREAMBLE, pb.TransferCommand)

"""The two ends of a connection between a producing and a consuming process."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec

_PREAMBLE = b"cornserve.v1.Transfer/3\n"

MAX_COMMAND_BYTES: Final = 4 << 10
MAX_EVENT_BYTES: Final = 128 << 10
MAX_METADATA_BYTES: Final = 64 << 10
"""Limit for the metadata of a tensor, which is part of an event."""

MAX_UNSENT_EVENTS: Final = 8192
"""A producer reads no further commands while this many of its events are unsent."""

CONSUMER_CODEC: Final[Codec[pb.TransferCommand, pb.TransferEvent]] = Codec(
    _PREAMBLE, pb.TransferEvent, max_sent_bytes=MAX_COMMAND_BYTES, max_received_bytes=MAX_EVENT_BYTES
)
PRODUCER_CODEC: Final[Codec[pb.TransferEvent, pb.TransferCommand]] = Codec(
    _PREAMBLE,
    pb.TransferCommand,
    max_sent_bytes=MAX_EVENT_BYTES,
    max_received_bytes=MAX_COMMAND_BYTES,
    max_unsent=MAX_UNSENT_EVENTS,
)

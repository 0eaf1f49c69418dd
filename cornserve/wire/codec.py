"""The messages of a protocol, their limits, and the errors of messages that violate them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import EncodeError, Message

from cornserve.wire.frame_reader import MAX_FRAME_BYTES

Sent = TypeVar("Sent", bound=Message)
Received = TypeVar("Received", bound=Message)

MAX_UNSENT_BYTES: Final = 64 << 20
"""Senders that wait for capacity wait while their unsent messages have this many bytes, and an end that limits its
unsent messages stops reading."""


class MessageSizeError(Exception):
    """A message cannot be sent, because it is empty or too large for a frame."""


class ProtocolError(Exception):
    """The other end sent a message that the protocol does not allow in this place. Raise it in the callback of a
    connection: it aborts the connection and nothing else."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[Sent, Received]):
    """The protocol from the perspective of one end."""

    preamble: bytes
    """Identifies the protocol and its version in the handshake."""
    received_type: type[Received]
    """The type of the messages that this end receives."""
    max_sent_bytes: int = MAX_FRAME_BYTES
    """Limit for the size of a message that this end sends."""
    max_received_bytes: int = MAX_FRAME_BYTES
    """Limit for the size of a message that this end receives."""
    max_unsent: int | None = None
    """The number of unsent messages at which this end stops reading. Only one end of a protocol may have this limit:
    the other end must always read."""

    def encode(self, message: Sent, rest: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the encoded message in parts: its fields, and the encoding of further fields. Raises
        `MessageSizeError`."""
        try:
            content = message.SerializeToString()
        except (EncodeError, ValueError) as error:  # the message is larger than protobuf can encode
            raise MessageSizeError(f"the message cannot be encoded: {error}") from error
        parts = (content, *rest)
        size = sum(map(len, parts))
        if not 0 < size <= self.max_sent_bytes:
            raise MessageSizeError(f"the message has {size} bytes: it must have 1 to {self.max_sent_bytes}")
        return parts

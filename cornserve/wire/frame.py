"""What a frame holds: a protobuf message that repeats others in its first field, and has no more.

Its bytes are those of the others, one after the other, each behind the field's mark and its length. protobuf itself
would first make a message of them all, for which it writes and reads each of them once more: 9 ms for one of 5 MB.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

_IN_FIELD_1 = b"\x0a"
"""What stands before each: field 1, of bytes that tell their length."""


def packed(messages: Iterable[Message]) -> bytes:
    """The content of the frame that has them. Raises what protobuf does when it cannot write one."""
    parts: list[bytes] = []
    for message in messages:
        content = message.SerializeToString()
        parts += (_IN_FIELD_1, _varint(len(content)), content)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Seven bits in a byte, the lowest first; all but the last byte have the eighth."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)

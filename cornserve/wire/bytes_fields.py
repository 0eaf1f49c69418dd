"""Encodes a large `bytes` field of a protobuf message without copying it.

A parser merges concatenated encodings of one message, and appends the elements of a repeated field. The encoding of a
large field can therefore follow that of the message without it.
"""

from __future__ import annotations

from google.protobuf.message import Message

FieldPath = tuple[int, ...]
"""The numbers of nested fields, from the outermost to the `bytes` field."""

_LENGTH_DELIMITED = 2
"""The wire type of strings, bytes and messages (https://protobuf.dev/programming-guides/encoding/)."""


def field_path(message: type[Message], *names: str) -> FieldPath:
    """Returns the path of a field of `message`, or of a message in it."""
    fields = [message.DESCRIPTOR.fields_by_name[names[0]]]
    for name in names[1:]:
        inner = fields[-1].message_type
        assert inner is not None
        fields.append(inner.fields_by_name[name])
    return tuple(field.number for field in fields)


def encode_bytes_field(path: FieldPath, content: bytes) -> tuple[bytes, bytes]:
    """Returns the encoding of a message that consists of this field only: the part before the content, and the content.

    Each call adds an element to a repeated field on the path.
    """
    head = b""
    for number in reversed(path):
        head = _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(head) + len(content)) + head
    return head, content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 1 << 7:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

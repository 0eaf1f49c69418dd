"""Checks what a producing process announces, because readers use the values without further checks."""

from __future__ import annotations

from cornserve.transport.memory import segment
from cornserve.transport.memory.refcounted_blocks import CAPABILITY_BYTES
from cornserve.transport.memory.segment import TOKEN_BYTES
from cornserve.transport.tensor import tensor_bytes
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import ProtocolError


def check_producer(producer: pb.Producer) -> None:
    """Raises `ProtocolError` if the description of a process is inconsistent."""
    if len(producer.token) != TOKEN_BYTES or producer.segment != segment.file_name(producer.token):
        raise ProtocolError(f"the segment {producer.segment!r} does not belong to the token {producer.token.hex()!r}")


def check_tensor(tensor: pb.TensorRef) -> None:
    """Raises `ProtocolError` if a tensor has no valid capability, or its size does not match its dtype and shape."""
    if len(tensor.capability) != CAPABILITY_BYTES:
        raise ProtocolError(f"the capability of a tensor has {len(tensor.capability)} bytes, not {CAPABILITY_BYTES}")
    try:
        expected = tensor_bytes(tensor.dtype, tensor.shape)
    except ValueError as error:
        raise ProtocolError(f"a tensor is invalid: {error}") from error
    if tensor.nbytes != expected:
        shape = tuple(tensor.shape)
        raise ProtocolError(f"a tensor of {tensor.nbytes} bytes has the dtype {tensor.dtype!r} and the shape {shape}")

"""Copies tensors between torch and the data plane's memory: one copy, on a CPU and on a GPU.

A GPU copies at full speed only to and from page-locked memory, so the first copy locks the steps of the segment in
which the tensor is.

Copies of a GPU run on separate streams, next to the kernels of the next batch. They do not wait for the computation
of a tensor: only tensors that the GPU has completed can be copied. `run_on_device` returns such tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256

import torch

from cornserve.transport import address_of
from cornserve.transport.tensor import tensor_bytes
from cornserve_executors.page_locks import CUDA_LOCKS


def dtype_name(dtype: torch.dtype) -> str:
    """Returns the dtype's name in the data plane, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def copy_to_buffer(tensor: torch.Tensor, destination: memoryview) -> None:
    """Copies a completed tensor of any shape, dtype and device. Blocks until the copy is complete, in any thread.

    Args:
        destination: at least `tensor.nbytes` bytes. Bytes after those do not change.

    Raises:
        ValueError: the destination is too small.
    """
    if tensor.nbytes > destination.nbytes:
        raise ValueError(f"a tensor of {tensor.nbytes} bytes does not fit into {destination.nbytes} bytes")
    if tensor.device.type != "cuda":
        destination[: tensor.nbytes] = byte_view(tensor)
        return
    parts = CUDA_LOCKS.register(destination[: tensor.nbytes])
    with torch.cuda.stream(_stream(tensor.device, "to the host")):
        source = tensor.contiguous().view(-1).view(torch.uint8).split([part.nbytes for part in parts])
        for part, piece in zip(parts, source, strict=True):
            host_tensor(part, torch.uint8, (-1,)).copy_(piece)


def read_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a completed tensor of any device in C order. Blocks until they are on the host."""
    if tensor.device.type != "cuda":
        return byte_view(tensor)
    with torch.cuda.stream(_stream(tensor.device, "to the host")):
        return byte_view(tensor.cpu())


def copy_from_buffer(source: memoryview, dtype: str, shape: Sequence[int], device: str = "cpu") -> torch.Tensor:
    """Returns a tensor with its own memory. Blocks until the copy is complete, in any thread.

    Args:
        source: the bytes in C order, in the size that `shape` and `dtype` require.
        dtype: a `dtype_name`.

    Raises:
        ValueError: the source has another size.
    """
    expected = tensor_bytes(dtype, shape)
    if source.nbytes != expected:
        raise ValueError(f"a tensor of {expected} bytes cannot be read from {source.nbytes} bytes")
    if torch.device(device).type != "cuda":
        tensor = torch.empty(*shape, dtype=getattr(torch, dtype), device=device)
        byte_view(tensor)[:] = source
        return tensor
    parts = CUDA_LOCKS.register(source)
    with torch.cuda.stream(_stream(torch.device(device), "to the device")):
        tensor = torch.empty(*shape, dtype=getattr(torch, dtype), device=device)
        target = tensor.view(-1).view(torch.uint8).split([part.nbytes for part in parts])
        for part, piece in zip(parts, target, strict=True):
            piece.copy_(host_tensor(part, torch.uint8, (-1,)))
    # torch reuses the memory for the next copy, which must wait for the uses of this tensor.
    tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


def is_finite(source: memoryview, dtype: str, target: torch.dtype) -> bool:
    """Returns whether all numbers of a tensor are finite after conversion to `target`, in one pass over its memory.

    Engines refuse other tensors: NaN in the keys and values of one request can reach later requests, because masked
    attention multiplies the contents of reused memory by zero.

    Args:
        source: the bytes in C order.
        dtype: a `dtype_name`.
    """
    if not source.nbytes:
        return True
    extremes = host_tensor(source, getattr(torch, dtype), (-1,)).aminmax()
    return all(bool(extreme.to(target).isfinite()) for extreme in extremes)


def byte_view(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a host tensor in C order: its memory, or a copy if it is not contiguous."""
    return memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy())


def tensor_digest(tensor: torch.Tensor) -> str:
    """Returns a digest of the dtype, the shape and the contents."""
    digest = sha256(repr((tensor.dtype, tensor.shape)).encode())
    digest.update(byte_view(tensor.cpu()))
    return digest.hexdigest()


@contextmanager
def copy_stream(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """Runs work of a GPU next to the kernels of the next batch. It does not wait for earlier work."""
    stream = _stream(device, "within the device")
    with torch.cuda.stream(stream):
        yield stream


def host_tensor(buffer: memoryview, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Returns the memory of a buffer as a tensor. The caller must keep the buffer."""
    # Not from the buffer itself, because torch warns of read-only memory.
    memory = (ctypes.c_ubyte * buffer.nbytes).from_address(address_of(buffer))
    return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(shape)


@cache
def _stream(device: torch.device, direction: str) -> torch.cuda.Stream:
    """Returns the stream for the copies in a direction. Each stream keeps freed memory of the GPU for later copies."""
    return torch.cuda.Stream(device)

"""Copies tensors between torch and the data plane's memory: one copy on a CPU.

A GPU copies at full speed only to and from pinned memory. The data plane's memory is not pinned, so tensors pass
through staging buffers from torch's pool of pinned memory, on a separate stream.

That stream does not wait for the computation of a tensor: only tensors that the GPU has completed can be copied to the
host. `run_on_device` returns such tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


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
    destination[: tensor.nbytes] = byte_view(_on_host(tensor))


def read_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a completed tensor of any device in C order. Blocks until they are on the host."""
    return byte_view(_on_host(tensor))


def copy_from_buffer(source: memoryview, dtype: str, shape: Sequence[int], device: str = "cpu") -> torch.Tensor:
    """Returns a tensor with its own memory. On a GPU, the current stream orders the copy before its uses.

    Args:
        source: the bytes in C order, in the size that `shape` and `dtype` require.
        dtype: a `dtype_name`.

    Raises:
        ValueError: the source has another size.
    """
    pinned = torch.device(device).type == "cuda"
    tensor = torch.empty(*shape, dtype=getattr(torch, dtype), pin_memory=pinned)
    byte_view(tensor)[:] = source
    return tensor.to(device, non_blocking=True)


def byte_view(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a host tensor in C order: its memory, or a copy if it is not contiguous."""
    return memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy())


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cuda":
        return tensor
    stream = torch.cuda.Stream(tensor.device)
    with torch.cuda.stream(stream):
        staging = torch.empty_like(tensor, device="cpu", pin_memory=True)
        staging.copy_(tensor, non_blocking=True)
    stream.synchronize()
    return staging

"""Tensors into and out of the data plane's memory, with one copy where the device is the CPU.

Memory that a GPU copies to or from at full speed has to be pinned. The data plane's is not, so a tensor passes through
staging buffers from torch's own pool of pinned memory, on a stream beside the one that computes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def dtype_name(dtype: torch.dtype) -> str:
    """As the data plane spells it: "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def write(tensor: torch.Tensor, destination: memoryview) -> None:
    """Copies what has been computed, of any shape, dtype and device. Blocks until it is there; any thread will do.

    Args:
        destination: has `tensor.nbytes` bytes at least; those behind are left as they are.

    Raises:
        ValueError: it has fewer.
    """
    destination[: tensor.nbytes] = bytes_of(_on_host(tensor))


def read(source: memoryview, dtype: str, shape: Sequence[int], device: str = "cpu") -> torch.Tensor:
    """A tensor of one's own, which outlives the source. A GPU may have it only later in its current stream.

    Args:
        source: its bytes in C order: as many as shape and dtype make.
        dtype: as `dtype_name` spells it.

    Raises:
        ValueError: the source has another number of bytes.
    """
    pinned = torch.device(device).type == "cuda"
    tensor = torch.empty(*shape, dtype=getattr(torch, dtype), pin_memory=pinned)
    bytes_of(tensor)[:] = source
    return tensor.to(device, non_blocking=True)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Of one on the host, `nbytes` of them in C order: its own memory, or a copy's if it is not contiguous."""
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

"""Copies between tensors and shared memory, for the layouts that vLLM, transformers and diffusers use on GPUs."""

from __future__ import annotations

import pytest
import torch

from cornserve_executors.tensor_copies import copy_from_buffer, copy_to_buffer, dtype_name, read_bytes

KV_CACHE = torch.arange(2 * 3 * 4 * 2 * 8).view(2, 3, 4, 2, 8)
"""Keys and values, blocks, tokens of a block, heads, width."""

LAYOUTS = {
    "rows of a batch": torch.arange(60).view(10, 6)[2:7],
    "columns of rows with several levels": torch.arange(60).view(10, 6)[:, 2:4],
    "one row for many tokens": torch.arange(6).expand(5, 6),
    "keys and values by token": KV_CACHE[1, 2],
    "keys and values by head": KV_CACHE.transpose(2, 3)[0],
    "channels last": torch.arange(120).view(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "a number": torch.tensor([7]),
}
"""Tensors of small integers, which all dtypes represent."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_of_any_layout_arrives_with_its_values_in_c_order(layout: str, dtype: torch.dtype) -> None:
    tensor = (LAYOUTS[layout] % 16).to(dtype)
    memory = bytearray(b"\xff" * (tensor.nbytes + 8))

    copy_to_buffer(tensor, memoryview(memory))
    copied = copy_from_buffer(memoryview(memory)[: tensor.nbytes], dtype_name(dtype), tensor.shape)

    assert copied.is_contiguous()
    assert copied.dtype == dtype
    assert torch.equal(copied.float(), tensor.float())
    assert bytes(read_bytes(tensor)) == memory[: tensor.nbytes]
    assert memory[tensor.nbytes :] == b"\xff" * 8


def test_a_buffer_of_another_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="different structures"):
        copy_to_buffer(torch.zeros(4), memoryview(bytearray(15)))
    with pytest.raises(ValueError, match="different structures"):
        copy_from_buffer(memoryview(bytes(15)), "float32", (4,))

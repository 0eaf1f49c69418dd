"""Copies between tensors and shared memory, for the layouts that vLLM, transformers and diffusers use on GPUs."""

from __future__ import annotations

from typing import Any

import pytest

LAYOUTS = (
    "rows of a batch",
    "columns of rows with several levels",
    "one row for many tokens",
    "keys and values by token",
    "keys and values by head",
    "channels last",
    "a number",
)

DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "int64")


def tensor_of(layout: str) -> Any:
    """Returns a tensor of small integers, which all dtypes represent."""
    import torch

    kv_cache = torch.arange(2 * 3 * 4 * 2 * 8).view(2, 3, 4, 2, 8)  # Keys and values, blocks, tokens, heads, width.
    tensors = (
        torch.arange(60).view(10, 6)[2:7],
        torch.arange(60).view(10, 6)[:, 2:4],
        torch.arange(6).expand(5, 6),
        kv_cache[1, 2],
        kv_cache.transpose(2, 3)[0],
        torch.arange(120).view(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.tensor([7]),
    )
    return dict(zip(LAYOUTS, tensors, strict=True))[layout] % 16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_of_any_layout_arrives_with_its_values_in_c_order(layout: str, dtype: str) -> None:
    import torch

    from cornserve_executors.tensor_copies import copy_from_buffer, copy_to_buffer, read_bytes

    tensor = tensor_of(layout).to(getattr(torch, dtype))
    memory = bytearray(b"\xff" * (tensor.nbytes + 8))

    copy_to_buffer(tensor, memoryview(memory))
    copied = copy_from_buffer(memoryview(memory)[: tensor.nbytes], dtype, tensor.shape)

    assert copied.is_contiguous()
    assert copied.dtype == tensor.dtype
    assert torch.equal(copied.float(), tensor.float())
    assert bytes(read_bytes(tensor)) == memory[: tensor.nbytes]
    assert memory[tensor.nbytes :] == b"\xff" * 8


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_values_that_are_not_finite_are_found(dtype: str, value: float) -> None:
    import torch

    from cornserve_executors.tensor_copies import byte_view, is_finite

    tensor = torch.ones(3, 50, dtype=getattr(torch, dtype))
    assert is_finite(byte_view(tensor), dtype, torch.bfloat16)
    tensor[2, 17] = value
    assert not is_finite(byte_view(tensor), dtype, torch.bfloat16)


def test_values_outside_the_range_of_the_target_are_not_finite() -> None:
    import torch

    from cornserve_executors.tensor_copies import byte_view, is_finite

    tensor = torch.tensor([1, -1e6], dtype=torch.bfloat16)

    assert is_finite(byte_view(tensor), "bfloat16", torch.float32)
    assert not is_finite(byte_view(tensor), "bfloat16", torch.float16)
    assert is_finite(byte_view(tensor[:0]), "bfloat16", torch.float16)


def test_a_buffer_of_another_size_is_an_error() -> None:
    import torch

    from cornserve_executors.tensor_copies import copy_from_buffer, copy_to_buffer

    with pytest.raises(ValueError, match="a tensor of 16 bytes does not fit into 15 bytes"):
        copy_to_buffer(torch.zeros(4), memoryview(bytearray(15)))
    with pytest.raises(ValueError, match="a tensor of 16 bytes cannot be read from 15 bytes"):
        copy_from_buffer(memoryview(bytes(15)), "float32", (4,))

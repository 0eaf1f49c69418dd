"""Copies of blocks of a KV cache to and from host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

LAYERS, BLOCKS = 3, 9


def caches(axis: int, dtype: str = "float32") -> list[torch.Tensor]:
    """Returns caches of different numbers, whose blocks are on an axis."""
    import torch

    shape = [2, 4, 8]
    shape.insert(axis, BLOCKS)
    numbers = torch.arange(LAYERS * 64 * BLOCKS, dtype=getattr(torch, dtype))
    return [*numbers.view(LAYERS, *shape).clone()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("blocks", [[4], [3, 4, 5], [7, 2, 3, 0, 8], [*range(BLOCKS)]])
def test_blocks_are_saved_layer_after_layer(dtype: str, axis: int, blocks: list[int]) -> None:
    import torch

    from cornserve_executors.llm.block_copies import BlockCopies

    layers = caches(axis, dtype)
    expected = torch.stack([layer.index_select(axis, torch.tensor(blocks)) for layer in layers])
    saved = memoryview(bytearray(expected.nbytes))

    BlockCopies(layers, axis).save(blocks, saved)

    assert torch.equal(torch.frombuffer(saved, dtype=expected.dtype).view(expected.shape), expected)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("first", "targets"), [(0, [5, 1, 2, 8]), (1, [6, 7, 0]), (3, [4])])
def test_blocks_from_the_first_missing_one_on_are_loaded_into_others(axis: int, first: int, targets: list[int]) -> None:
    import torch

    from cornserve_executors.llm.block_copies import BlockCopies

    source, target = caches(axis), [torch.zeros_like(layer) for layer in caches(axis)]
    blocks = [3, 4, 8, 1]
    saved = memoryview(bytearray(LAYERS * 64 * 4 * len(blocks)))
    BlockCopies(source, axis).save(blocks, saved)

    BlockCopies(target, axis).load(targets, saved.toreadonly(), first, len(blocks))

    for before, after in zip(source, target, strict=True):
        expected = torch.zeros_like(before)
        for block, copied in zip(targets, blocks[first:], strict=True):
            expected.select(axis, block).copy_(before.select(axis, copied))
        assert torch.equal(after, expected)


def test_cleared_blocks_are_zero_and_others_stay() -> None:
    import torch

    from cornserve_executors.llm.block_copies import BlockCopies

    layers = caches(1)
    before = [layer.clone() for layer in layers]

    BlockCopies(layers, 1).clear([2, 6])

    for old, new in zip(before, layers, strict=True):
        assert not new[:, [2, 6]].any()
        kept = [block for block in range(BLOCKS) if block not in (2, 6)]
        assert torch.equal(new[:, kept], old[:, kept])

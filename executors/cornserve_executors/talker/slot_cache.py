"""A cache of keys and values in which each row has its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

MIN_LENGTH = 256
"""The shortest row of a forward pass, in tokens."""


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of the shape [slots, heads, length, width] for each layer, allocated once.

    Before each forward pass, `select` selects the slots of its rows.
    """

    def __init__(self, config: Any, slots: int, length: int, like: torch.Tensor) -> None:
        """Allocates the memory. The dtype and the device are those of `like`."""
        super().__init__(layers=[])
        shape = (slots, config.num_key_value_heads, length, config.head_dim)
        self.slots = slots
        self._keys = [like.new_zeros(shape) for _ in range(config.num_hidden_layers)]
        self._values = [like.new_zeros(shape) for _ in range(config.num_hidden_layers)]

    @property
    def device(self) -> torch.device:
        return self._keys[0].device

    def rows(self, slots: Sequence[int], lengths: Sequence[int], tokens: int) -> tuple[torch.Tensor, ...]:
        """Returns the rows of a forward pass with `tokens` new tokens each.

        Args:
            lengths: the tokens that each slot contains. Further contents are overwritten.

        Returns the slots, [rows], the positions of the new tokens, [rows, tokens], and the attention mask, of the
        shape [rows, 1, tokens, length]. The length is that of the longest row, rounded up.
        """
        device = self.device
        positions = (torch.tensor(lengths)[:, None] + torch.arange(tokens)).to(device, non_blocking=True)
        length = self._round_up(max(lengths) + tokens)
        mask = (torch.arange(length, device=device) <= positions[:, :, None])[:, None]
        return torch.tensor(slots).to(device, non_blocking=True), positions, mask

    def select(self, slots: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> None:
        """Selects the rows of the next forward pass, as `rows` returns them."""
        self._slot_indices, self._positions, self._length = slots, positions, mask.shape[-1]

    def _round_up(self, length: int) -> int:
        """Returns one of a few lengths, because a CUDA graph is captured for each."""
        longest: int = self._keys[0].shape[2]
        return min(longest, max(MIN_LENGTH, 1 << (length - 1).bit_length()))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the new keys and values, and returns those of the whole rows."""
        for cached, new in ((self._keys[layer_idx], key_states), (self._values[layer_idx], value_states)):
            cached[self._slot_indices[:, None], :, self._positions] = new.transpose(1, 2)
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        return keys[self._slot_indices, :, : self._length], values[self._slot_indices, :, : self._length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns 0, because the caller passes positions and masks."""
        return 0

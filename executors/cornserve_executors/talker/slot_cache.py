"""A cache of keys and values in which each row has its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of the shape [slots, heads, length, width] for each layer, allocated once.

    Before each forward pass, `begin` selects the slots of its rows.
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

    def begin(self, slots: Sequence[int], lengths: Sequence[int], tokens: int) -> torch.Tensor:
        """Selects the slots of the next forward pass, whose rows have `tokens` new tokens.

        Args:
            lengths: the tokens that each slot contains. Further contents are overwritten.

        Returns the attention mask, of the shape [rows, 1, tokens, longest row].
        """
        device = self.device
        self._slot_indices = torch.tensor(slots, device=device)
        self._positions = torch.tensor(lengths, device=device)[:, None] + torch.arange(tokens, device=device)
        self._longest = max(lengths) + tokens
        return (torch.arange(self._longest, device=device) <= self._positions[:, :, None])[:, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the new keys and values, and returns those of the whole rows."""
        for cached, new in ((self._keys[layer_idx], key_states), (self._values[layer_idx], value_states)):
            cached[self._slot_indices[:, None], :, self._positions] = new.transpose(1, 2)
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        return keys[self._slot_indices, :, : self._longest], values[self._slot_indices, :, : self._longest]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns 0, because the caller passes positions and masks."""
        return 0

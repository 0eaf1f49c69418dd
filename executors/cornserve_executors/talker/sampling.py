"""Samples codes of several requests at once."""

from __future__ import annotations

import numpy as np
import torch

TOP_K = 50
"""The number of likeliest codes from which Qwen3-Omni samples."""


def draw_noise(seed: int, frame: int, groups: int) -> torch.Tensor:
    """Returns the Gumbel noise of one frame, which depends on nothing else. The shape is [groups, TOP_K]."""
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, frame]))
    return torch.from_numpy(generator.gumbel(size=(groups, TOP_K)).astype(np.float32))


def sample(logits: torch.Tensor, noise: torch.Tensor, temperatures: torch.Tensor, top_p: float) -> torch.Tensor:
    """Returns a code for each row.

    Args:
        logits: the shape is [rows, codes].
        noise: the Gumbel noise of the likeliest codes in order, of the shape [rows, TOP_K]; zero for greedy decoding.
        temperatures: the shape is [rows]; one for greedy decoding.
        top_p: samples from the likeliest codes whose probabilities add up to this value.
    """
    values, codes = logits.float().topk(min(TOP_K, logits.shape[-1]))
    values = values / temperatures[:, None]
    probabilities = values.softmax(-1)
    is_excluded = probabilities.cumsum(-1) - probabilities >= top_p
    chosen = (values.masked_fill(is_excluded, -torch.inf) + noise[:, : values.shape[-1]]).argmax(-1, keepdim=True)
    return codes.gather(1, chosen)[:, 0]


def penalize(logits: torch.Tensor, is_used: torch.Tensor, penalty: float) -> torch.Tensor:
    """Makes used codes less likely, like transformers' repetition penalty."""
    return torch.where(is_used, torch.where(logits < 0, logits * penalty, logits / penalty), logits)

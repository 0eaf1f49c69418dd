"""Samples codes of several requests at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

MAX_TOP_K = 50


@dataclass(frozen=True, slots=True)
class Sampling:
    """The codes from which a talker samples."""

    top_k: int
    """The number of likeliest codes, up to `MAX_TOP_K`."""
    top_p: float
    """The likeliest codes whose probabilities add up to this value."""


@lru_cache(maxsize=1024)  # A frame's first code and its other codes are generated in two steps.
def draw_noise(seed: int, frame: int, groups: int) -> torch.Tensor:
    """Returns the Gumbel noise of one frame, which depends on nothing else. The shape is [groups, MAX_TOP_K]."""
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, frame]))
    return torch.from_numpy(generator.gumbel(size=(groups, MAX_TOP_K)).astype(np.float32))


def sample(logits: torch.Tensor, noise: torch.Tensor, temperatures: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Returns a code for each row.

    Args:
        logits: the shape is [rows, codes].
        noise: the Gumbel noise of the likeliest codes in order, of the shape [rows, MAX_TOP_K]; zero for greedy
            decoding.
        temperatures: the shape is [rows]; one for greedy decoding.
    """
    values, codes = logits.float().topk(min(sampling.top_k, logits.shape[-1]))
    values = values / temperatures[:, None]
    probabilities = values.softmax(-1)
    is_excluded = probabilities.cumsum(-1) - probabilities >= sampling.top_p
    chosen = (values.masked_fill(is_excluded, -torch.inf) + noise[:, : values.shape[-1]]).argmax(-1, keepdim=True)
    return codes.gather(1, chosen)[:, 0]


def penalize(logits: torch.Tensor, is_used: torch.Tensor, penalty: float) -> torch.Tensor:
    """Makes used codes less likely, like transformers' repetition penalty."""
    return torch.where(is_used, torch.where(logits < 0, logits * penalty, logits / penalty), logits)

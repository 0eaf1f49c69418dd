"""The inputs of a talker before its first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cornserve_tasklib.spoken_prompt import SpokenPrompt


@dataclass(frozen=True, slots=True)
class ThinkerPrompt:
    """A chat as the thinker has read it."""

    prompt: SpokenPrompt
    states: torch.Tensor
    """Hidden states of the shape [tokens, width of the thinker]. Those of media for a Qwen3-Omni, of all tokens for a
    Qwen2.5-Omni."""


@dataclass(frozen=True, slots=True)
class TalkerPrompt:
    """The input of a talker before its first step."""

    rows: torch.Tensor
    """The shape is [tokens, width]."""
    positions: torch.Tensor
    """The positions in time, height and width, of the shape [3, tokens]."""
    offset: int = 0
    """The position of each later token, minus its index. The patches of an image share positions."""


def media_positions(talker: Any, tokens: Sequence[int], prompt: SpokenPrompt, device: torch.device) -> torch.Tensor:
    """Returns the positions of tokens in time, height and width, of the shape [3, tokens].

    Args:
        talker: transformers' talker.
        prompt: describes the media among the tokens.
    """

    def tensor(values: Sequence[Any]) -> torch.Tensor | None:
        return torch.tensor(values, device=device) if values else None

    positions, _ = talker.get_rope_index(
        torch.tensor([tokens], device=device),
        tensor(prompt.image_grids),
        tensor(prompt.video_grids),
        torch.ones(1, len(tokens), dtype=torch.long, device=device),
        prompt.has_sound,
        tensor(prompt.audio_frames),
        tensor(prompt.seconds_per_grid),
    )
    result: torch.Tensor = positions[:, 0]
    return result

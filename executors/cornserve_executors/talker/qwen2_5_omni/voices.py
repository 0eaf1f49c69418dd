"""The voices of a Qwen2.5-Omni, which a file of its checkpoint contains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers.utils import cached_file

from cornserve_executors.base import ExecutorStartError

FILE = "spk_dict.pt"


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    start_token: int
    """The token with which the talker starts a response."""
    condition: torch.Tensor
    """The shape is [1, width]."""
    reference: torch.Tensor
    """A spectrogram of the voice, of the shape [1, frames, bands]."""


def load_voices(model_id: str, revision: str | None, device: str) -> dict[str, Voice]:
    """Returns the voices by name in lower case. Raises `ExecutorStartError` if the file is missing or damaged."""
    path = cached_file(model_id, FILE, revision=revision, _raise_exceptions_for_missing_entries=False)
    if path is None:
        raise ExecutorStartError(f"{model_id} has no voices: {FILE} not found: download the model again")
    try:
        return {
            name.lower(): Voice(
                int(voice["bos_token"]), voice["cond"].to(device).float(), voice["ref_mel"].to(device).float()
            )
            for name, voice in torch.load(path, weights_only=True, map_location="cpu").items()
        }
    except Exception as error:
        raise ExecutorStartError(f"{path} cannot be read: {error!r}: download the model again") from error

"""The attention of Whisper to its audio, and dynamic time warping, of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt


def reference_attention(
    model: Path, features: npt.NDArray[np.float32], tokens: Sequence[int], frames: int
) -> npt.NDArray[np.float32]:
    """Returns the normalized attention of the last half of the decoder's layers, of the shape [tokens, frames]."""
    import torch
    from transformers import WhisperForConditionalGeneration
    from transformers.models.whisper.generation_whisper import _median_filter

    whisper = WhisperForConditionalGeneration.from_pretrained(model, attn_implementation="eager").eval()
    with torch.no_grad():
        outputs = whisper(
            input_features=torch.from_numpy(features)[None],
            decoder_input_ids=torch.tensor([[*tokens]]),
            output_attentions=True,
        )
    layers = outputs.cross_attentions[len(outputs.cross_attentions) // 2 :]
    weights = torch.cat([layer[0] for layer in layers])[..., :frames]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    smoothed: npt.NDArray[np.float32] = _median_filter((weights - mean) / deviation, 7).mean(dim=0).numpy()
    return smoothed


def reference_first_frames(costs: npt.NDArray[np.float32]) -> list[int]:
    from transformers.models.whisper.generation_whisper import _dynamic_time_warping

    tokens, frames = _dynamic_time_warping(costs.astype(np.float64))
    starts: dict[int, int] = {}
    for token, frame in zip(tokens.tolist(), frames.tolist(), strict=True):
        starts.setdefault(token, frame)
    return [starts[token] for token in range(len(costs))]


def visible_ascii(texts: Sequence[str]) -> str:
    """Returns the characters of texts without spaces, and without those that part of a token may decode to."""
    return "".join(character for text in texts for character in text if "!" <= character <= "~")

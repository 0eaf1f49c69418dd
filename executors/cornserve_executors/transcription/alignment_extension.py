"""An extension of vLLM's workers: the attention of a transcript of Whisper to its audio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.forward_context import set_forward_context

MEDIAN_FRAMES = 7
"""The width of the filter that smooths the attention over time, as in OpenAI's and transformers' code of Whisper."""


class AlignmentExtension:
    """A method that vLLM adds to its workers (`worker_extension_cls`)."""

    get_model: Any
    vllm_config: Any

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def attend_to_audio(
        self, features: bytes, bins: int, tokens: Sequence[int], frames: int, heads: Sequence[tuple[int, int]]
    ) -> bytes:
        """Returns how each token attends to the frames of the audio, summed over those of the heads that this worker
        has: float32 of the shape [tokens, frames].

        The model reads the tokens once more, in one pass, which takes about as long as the prefill of these tokens.

        Args:
            features: the audio, float32 of the shape [bins, …].
            frames: the number of the encoder's frames of 20 ms to consider, the first ones.
            heads: layers of the decoder, and heads of their cross-attention.
        """
        model = self.get_model()
        decoder = model.model.decoder
        device = decoder.embed_tokens.weight.device
        audio = torch.frombuffer(bytearray(features), dtype=torch.float32).view(bins, -1).to(device, model.dtype)
        with set_forward_context(None, self.vllm_config):
            (encoded,) = model.model.encoder([audio])
        states = decoder.embed_tokens(torch.tensor(tokens, device=device))
        states = states + decoder.embed_positions(torch.arange(len(tokens), device=device))
        total = torch.zeros(len(tokens), frames, device=device)
        for number, layer in enumerate(decoder.layers):
            states = states + _attend_to_tokens(layer.self_attn, layer.self_attn_layer_norm(states))
            attended, scores = _attend(layer.encoder_attn, layer.encoder_attn_layer_norm(states), encoded)
            states = states + attended
            states = states + layer.mlp(layer.final_layer_norm(states))
            first = get_tensor_model_parallel_rank() * layer.encoder_attn.num_heads
            chosen = [head - first for of, head in heads if of == number and 0 <= head - first < len(scores)]
            if chosen:
                total += _normalized(scores[chosen, :, :frames].float().softmax(dim=-1)).sum(dim=0)
        summed: bytes = total.cpu().numpy().tobytes()
        return summed


def _attend_to_tokens(attention: Any, states: torch.Tensor) -> torch.Tensor:
    """Returns the causal self-attention."""
    projected, _ = attention.qkv_proj(states)
    query, key, value = (_heads(part, attention) for part in projected.split(attention.q_size, dim=-1))
    attended = scaled_dot_product_attention(query, key, value, is_causal=True, scale=attention.scaling)
    return _projected(attended, attention)


def _attend(attention: Any, states: torch.Tensor, encoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cross-attention, and its scores before the softmax, of the shape [heads, tokens, frames]."""
    projected, _ = attention.q_proj(states)
    both, _ = attention.kv_proj(encoded)
    key, value = (_heads(part, attention) for part in both.split(attention.kv_size, dim=-1))
    scores = _heads(projected, attention) @ key.transpose(-1, -2) * attention.scaling
    return _projected(scores.softmax(dim=-1) @ value, attention), scores


def _heads(states: torch.Tensor, attention: Any) -> torch.Tensor:
    """Returns states of the shape [positions, width] as [heads, positions, width of a head]."""
    return states.view(len(states), -1, attention.head_dim).transpose(0, 1)


def _projected(attended: torch.Tensor, attention: Any) -> torch.Tensor:
    projected, _ = attention.out_proj(attended.transpose(0, 1).flatten(1))
    return projected


def _normalized(weights: torch.Tensor) -> torch.Tensor:
    """Returns weights of the shape [heads, tokens, frames] relative to those of other tokens, smoothed over time."""
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    relative = (weights - mean) / deviation.clamp(min=1e-10)
    side = MEDIAN_FRAMES // 2
    if relative.shape[-1] <= side:
        return relative
    padded = pad(relative, (side, side), mode="reflect")
    return padded.unfold(-1, MEDIAN_FRAMES, 1).sort(dim=-1).values[..., side]

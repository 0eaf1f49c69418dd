"""Runs the transformer of Qwen-Image on images of different sizes and prompts of different lengths.

Images of one size run together, and different sizes one after the other: a large image keeps a GPU busy alone, and
padding would take as long as tokens. Prompts are padded, because they are much shorter than images. diffusers'
transformer masks padding, which changes the rounding of the other tokens. Here, attention runs for each row without it.

The kernels of linear layers depend on the number of tokens. On a CPU, each row therefore runs alone: it is computed
exactly as diffusers computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from diffusers.models.transformers.transformer_qwenimage import apply_rotary_emb_qwen
from torch.nn.functional import pad, scaled_dot_product_attention

ImageShape = list[tuple[int, int, int]]
"""Frames, height and width in tokens. The image to edit follows the image."""


class RaggedTransformer:
    """A `QwenImageTransformer2DModel` for ragged batches. Replaces its attention.

    Args:
        row_by_row: whether each row runs alone.
    """

    def __init__(self, transformer: Any, *, row_by_row: bool) -> None:
        self._transformer = transformer
        self._row_by_row = row_by_row
        self._attention = _RaggedAttention()
        transformer.set_attn_processor(self._attention)

    @property
    def config(self) -> Any:
        return self._transformer.config

    def predict(
        self,
        latents: Sequence[torch.Tensor],
        embeddings: Sequence[torch.Tensor],
        timesteps: torch.Tensor,
        shapes: Sequence[ImageShape],
    ) -> list[torch.Tensor]:
        """Returns the velocity for the latents of each row.

        Args:
            latents, embeddings: tensors of the shape [1, tokens, width], by row.
            timesteps: from 0 to 1, by row.
        """
        groups: dict[object, list[int]] = {}
        for row, shape in enumerate(shapes):
            groups.setdefault(row if self._row_by_row else tuple(shape), []).append(row)
        predicted: dict[int, torch.Tensor] = {}
        for rows in groups.values():
            self._attention.text_lengths = [embeddings[row].shape[1] for row in rows]
            (velocities,) = self._transformer(
                hidden_states=torch.cat([latents[row] for row in rows]),
                encoder_hidden_states=_padded([embeddings[row] for row in rows]),
                timestep=torch.stack([timesteps[row] for row in rows]),
                img_shapes=[shapes[row] for row in rows],
                return_dict=False,
            )
            predicted.update(zip(rows, velocities.split(1), strict=True))
        return [predicted[row] for row in range(len(shapes))]


def _padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    longest = max(row.shape[1] for row in rows)
    return torch.cat([pad(row, (0, 0, 0, longest - row.shape[1])) for row in rows])


class _RaggedAttention:
    """The joint attention of text and image: a processor of diffusers."""

    text_lengths: Sequence[int] = ()
    """The number of tokens of each text, without padding."""

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_hidden_states_mask: None = None,
        attention_mask: None = None,
        image_rotary_emb: Sequence[torch.Tensor] = (),
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the attention's output for the tokens of images and of padded texts.

        Args:
            image_rotary_emb: the rotary embeddings of image and text.
        """
        image_positions, text_positions = image_rotary_emb
        image = _heads(attn, attn.to_q, attn.to_k, attn.to_v, hidden_states)
        text = _heads(attn, attn.add_q_proj, attn.add_k_proj, attn.add_v_proj, encoder_hidden_states)
        for states, positions, norms in (
            (image, image_positions, (attn.norm_q, attn.norm_k)),
            (text, text_positions, (attn.norm_added_q, attn.norm_added_k)),
        ):
            for index, norm in enumerate(norms):
                states[index] = apply_rotary_emb_qwen(norm(states[index]), positions, use_real=False)
        texts, images = [], []
        for row, length in enumerate(self.text_lengths):
            joint = (
                torch.cat([of_text[row : row + 1, :length], of_image[row : row + 1]], dim=1).transpose(1, 2)
                for of_text, of_image in zip(text, image, strict=True)
            )
            attended = scaled_dot_product_attention(*joint).transpose(1, 2).flatten(2, 3)
            texts.append(attended[:, :length])
            images.append(attended[:, length:])
        return attn.to_out[0](torch.cat(images)), attn.to_add_out(_padded(texts))


def _heads(attn: Any, q: Any, k: Any, v: Any, states: torch.Tensor) -> list[torch.Tensor]:
    """Returns queries, keys and values of the shape [rows, tokens, heads, size]."""
    size = attn.inner_dim // attn.heads
    return [layer(states).unflatten(-1, (-1, size)) for layer in (q, k, v)]

"""Runs the transformer of Qwen-Image on batches whose rows have different numbers of tokens.

diffusers' transformer takes the positions of all rows from the first one, and masks padding, which changes the rounding
of the other tokens. Here, attention runs for each row without its padding.

The kernels of linear layers depend on the number of tokens. On a CPU, they therefore also run for each row without its
padding: a row is computed exactly as diffusers computes it alone. On a GPU, they run on the padded batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from diffusers.models.transformers.transformer_qwenimage import apply_rotary_emb_qwen
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention

ImageShape = list[tuple[int, int, int]]
"""Frames, height and width in tokens. The image to edit follows the image."""


class RaggedTransformer:
    """A `QwenImageTransformer2DModel` for ragged batches. Replaces some of its modules.

    Args:
        row_by_row: whether linear layers run for each row.
    """

    def __init__(self, transformer: Any, *, row_by_row: bool) -> None:
        self._transformer = transformer
        self._text, self._image = _Rows(), _Rows()
        transformer.set_attn_processor(_RaggedAttention(self._text, self._image))
        transformer.pos_embed = _PositionsByRow(transformer.pos_embed)
        if row_by_row:
            self._run_row_by_row()

    def _run_row_by_row(self) -> None:
        transformer, vectors = self._transformer, _Rows()
        embedding = transformer.time_text_embed
        embedding.timestep_embedder = _RowByRow(embedding.timestep_embedder, vectors)
        transformer.norm_out.linear = _RowByRow(transformer.norm_out.linear, vectors)
        transformer.img_in = _RowByRow(transformer.img_in, self._image)
        transformer.txt_in = _RowByRow(transformer.txt_in, self._text)
        transformer.proj_out = _RowByRow(transformer.proj_out, self._image)
        for block in transformer.transformer_blocks:
            block.img_mod = _RowByRow(block.img_mod, vectors)
            block.txt_mod = _RowByRow(block.txt_mod, vectors)
            block.img_mlp = _RowByRow(block.img_mlp, self._image)
            block.txt_mlp = _RowByRow(block.txt_mlp, self._text)
            for name in ("to_q", "to_k", "to_v"):
                setattr(block.attn, name, _RowByRow(getattr(block.attn, name), self._image))
            for name in ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
                setattr(block.attn, name, _RowByRow(getattr(block.attn, name), self._text))
            block.attn.to_out[0] = _RowByRow(block.attn.to_out[0], self._image)

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
        """Returns the velocity for the latents of each row, in one forward pass.

        Args:
            latents, embeddings: tensors of the shape [1, tokens, width], by row.
            timesteps: from 0 to 1, by row.
        """
        self._image.lengths = [row.shape[1] for row in latents]
        self._text.lengths = [row.shape[1] for row in embeddings]
        (predicted,) = self._transformer(
            hidden_states=_padded(latents),
            encoder_hidden_states=_padded(embeddings),
            timestep=timesteps,
            img_shapes=shapes,
            return_dict=False,
        )
        return self._image.split(predicted)


class _Rows:
    """The numbers of tokens of the rows, without padding. None if each row is a vector."""

    lengths: Sequence[int] | None = None

    def split(self, batch: torch.Tensor) -> list[torch.Tensor]:
        """Returns the rows of a padded batch, without padding."""
        rows = batch.split(1)
        if self.lengths is None:
            return list(rows)
        return [row[:, :length] for row, length in zip(rows, self.lengths, strict=True)]


def _padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    longest = max(row.shape[1] for row in rows)
    return torch.cat([pad(row, (0, 0, 0, longest - row.shape[1])) for row in rows])


class _RowByRow(nn.Module):  # type: ignore[misc]
    """Runs a layer for one row after the other, without padding."""

    def __init__(self, layer: nn.Module, rows: _Rows) -> None:
        super().__init__()
        self._layer = layer
        self._rows = rows

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        outputs = [self._layer(row) for row in self._rows.split(batch)]
        return torch.cat(outputs) if self._rows.lengths is None else _padded(outputs)


class _PositionsByRow(nn.Module):  # type: ignore[misc]
    """Returns the rotary embeddings of each row for its own size."""

    def __init__(self, positions: nn.Module) -> None:
        super().__init__()
        self._positions = positions

    def forward(
        self, shapes: Sequence[ImageShape], max_txt_seq_len: int, device: torch.device
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [self._positions([shape], max_txt_seq_len=max_txt_seq_len, device=device) for shape in shapes]


class _RaggedAttention:
    """The joint attention of text and image: a processor of diffusers."""

    def __init__(self, text: _Rows, image: _Rows) -> None:
        self._text = text
        self._image = image

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_hidden_states_mask: None = None,
        attention_mask: None = None,
        image_rotary_emb: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the attention's output for the padded tokens of images and texts.

        Args:
            image_rotary_emb: the rotary embeddings of image and text, by row.
        """
        image = _heads(attn, attn.to_q, attn.to_k, attn.to_v, hidden_states)
        text = _heads(attn, attn.add_q_proj, attn.add_k_proj, attn.add_v_proj, encoder_hidden_states)
        image[0], image[1] = attn.norm_q(image[0]), attn.norm_k(image[1])
        text[0], text[1] = attn.norm_added_q(text[0]), attn.norm_added_k(text[1])
        texts, images = [], []
        for positions, joint in zip(image_rotary_emb, self._joint_rows(text, image), strict=True):
            image_positions, text_positions = positions
            split = joint[0].shape[1] - len(image_positions)
            rotations = torch.cat([text_positions[:split], image_positions])
            q, k = (apply_rotary_emb_qwen(states, rotations, use_real=False) for states in joint[:2])
            attended = scaled_dot_product_attention(*(states.transpose(1, 2) for states in (q, k, joint[2])))
            attended = attended.transpose(1, 2).flatten(2, 3)
            texts.append(attended[:, :split])
            images.append(attended[:, split:])
        return attn.to_out[0](_padded(images)), attn.to_add_out(_padded(texts))

    def _joint_rows(self, text: Sequence[torch.Tensor], image: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
        """Yields queries, keys and values of text and image, by row."""
        by_row = zip(*map(self._text.split, text), *map(self._image.split, image), strict=True)
        for row in by_row:
            yield [torch.cat(states, dim=1) for states in zip(row[:3], row[3:], strict=True)]


def _heads(attn: Any, q: Any, k: Any, v: Any, states: torch.Tensor) -> list[torch.Tensor]:
    """Returns queries, keys and values of the shape [rows, tokens, heads, size]."""
    size = attn.inner_dim // attn.heads
    return [layer(states).unflatten(-1, (-1, size)) for layer in (q, k, v)]

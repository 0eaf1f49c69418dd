"""Trains the vision-language model of the demo: a Qwen2.5-VL that names the shapes of an image."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from cornserve_demo.optimization import Optimization
from cornserve_demo.shapes import TRAINED, describe, draw
from cornserve_demo.tokenizer import ANSWER, PROMPT, READER_TEMPLATE, make_tokenizer

WIDTH = 128
PIXELS = 56
"""The width and height to which the processor scales an image of 64 pixels."""

BATCH = 64
_IGNORED = -100
"""The label of tokens without loss."""

_IMAGE_TOKENS = (PIXELS // 28) ** 2

Progress = Callable[[str], None]


def make_processor() -> Any:
    size = {"shortest_edge": PIXELS * PIXELS, "longest_edge": 448 * 448}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=make_tokenizer(),
        video_processor=Qwen2VLVideoProcessor(size=size),
        chat_template=READER_TEMPLATE,
    )


def make_model(tokenizer: Any) -> Any:
    """Returns a model with random weights."""
    token_id = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": token_id("<|im_end|>"),
            "pad_token_id": token_id("<|endoftext|>"),
        },
        vision_config={
            "depth": 3,
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_heads": 4,
            "out_hidden_size": WIDTH,
            "fullatt_block_indexes": [1],
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
    )
    return Qwen2_5_VLForConditionalGeneration(config)


class Batches:
    """Random training samples: images with their descriptions."""

    def __init__(self, processor: Any, seed: int) -> None:
        self._processor = processor
        self._random = random.Random(seed)
        prompt = PROMPT.replace("<|image_pad|>", "<|image_pad|>" * _IMAGE_TOKENS)
        self._prompt = processor.tokenizer(prompt).input_ids

    def draw(self) -> dict[str, Any]:
        """Returns the arguments of the model's forward pass."""
        chosen = [self._random.choice(TRAINED) for _ in range(BATCH)]
        answers = [self._processor.tokenizer(ANSWER.format(describe(shapes))).input_ids for shapes in chosen]
        pixels = self._processor.image_processor(images=[draw(shapes, self._random) for shapes in chosen])
        longest = max(map(len, answers))
        padding = self._processor.tokenizer.pad_token_id
        ids = [[*self._prompt, *answer, *[padding] * (longest - len(answer))] for answer in answers]
        labels = [
            [*[_IGNORED] * len(self._prompt), *answer, *[_IGNORED] * (longest - len(answer))] for answer in answers
        ]
        values = torch.as_tensor(pixels["pixel_values"])
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            # Noise, as images that a model draws are not as smooth.
            "pixel_values": values + 0.05 * torch.randn(values.shape),
            "image_grid_thw": torch.as_tensor(pixels["image_grid_thw"]),
        }


def train(directory: Path, steps: int, progress: Progress) -> None:
    """Trains and saves the model."""
    torch.manual_seed(0)
    processor = make_processor()
    model = make_model(processor.tokenizer).train()
    batches = Batches(processor, seed=1)
    optimization = Optimization(model, steps, rate=1e-3, peak=1.5e-3, weight_decay=0.01)
    positions = None
    for step in range(1, steps + 1):
        batch = batches.draw()
        if positions is None or positions.shape[-1] != batch["input_ids"].shape[1]:
            positions = _positions(model, batch)
        loss = model(**batch, position_ids=positions).loss
        optimization.minimize(loss)
        if optimization.reports(step):
            progress(f"language model: step {step} of {steps}, loss {loss.item():.3f}")
    model.to(torch.bfloat16).eval().save_pretrained(directory)
    processor.save_pretrained(directory)


def _positions(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Returns the positions of the tokens, which all samples share."""
    ids = batch["input_ids"][:1]
    types = (ids == model.config.image_token_id).int()
    positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=types, image_grid_thw=batch["image_grid_thw"][:1])
    return positions.expand(-1, BATCH, -1)

"""Trains the speaking model of the demo: a Qwen3-Omni that spells words, in letters and in beeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3OmniMoeForConditionalGeneration,
    Qwen3OmniMoeProcessor,
    WhisperFeatureExtractor,
)

from cornserve_demo import talker, thinker, vocoder
from cornserve_demo.omni_config import MEDIA_TOKENS, make_config
from cornserve_demo.tokenizer import CHAT_TEMPLATE, make_letter_tokenizer

Progress = Callable[[str], None]


def make_processor() -> Any:
    size = {"shortest_edge": 64 * 64, "longest_edge": 448 * 448}
    return Qwen3OmniMoeProcessor(
        image_processor=Qwen2VLImageProcessor(size=size, patch_size=16),
        video_processor=Qwen2VLVideoProcessor(size=size, patch_size=16),
        feature_extractor=WhisperFeatureExtractor(feature_size=128, return_attention_mask=True),
        tokenizer=make_letter_tokenizer(MEDIA_TOKENS),
        chat_template=CHAT_TEMPLATE,
    )


def train(directory: Path, steps: int, progress: Progress) -> None:
    """Trains and saves the model. Its encoders of images and audio keep their random weights.

    Args:
        steps: the training steps of the thinker and of the talker. The vocoder needs fewer.
    """
    torch.manual_seed(0)
    processor = make_processor()
    model = Qwen3OmniMoeForConditionalGeneration(make_config(processor.tokenizer))
    thinker.train(model.thinker, processor.tokenizer, steps, progress)
    talker.train(model, processor.tokenizer, steps, progress)
    vocoder.train(model.code2wav, -(-steps // 5), progress)
    model.to(torch.bfloat16).eval().save_pretrained(directory)
    processor.save_pretrained(directory)

"""Makes a Qwen3-VL of three vision and two language layers with random weights.

python -m tests.models.tiny_qwen3vl DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import chat_template, save, text_config, tokenizer

SPECIAL_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]


def make(directory: Path) -> None:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    processor = qwen3vl_processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    config = Qwen3VLConfig(
        text_config=text_config(processor.tokenizer, head_dim=32, rope_parameters=rope),
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    save(Qwen3VLForConditionalGeneration, config, processor, directory)


def qwen3vl_processor() -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    # An image is 4 to 196 tokens.
    size = {"shortest_edge": 64 * 64, "longest_edge": 448 * 448}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            size=size, patch_size=16, image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5]
        ),
        tokenizer=tokenizer(SPECIAL_TOKENS),
        # A video is at least 16 tokens and at most 256.
        video_processor=Qwen3VLVideoProcessor(size={"shortest_edge": 128 * 128 * 2, "longest_edge": 512 * 512 * 2}),
        chat_template=chat_template(
            "<|vision_start|><|image_pad|><|vision_end|>", video="<|vision_start|><|video_pad|><|vision_end|>"
        ),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

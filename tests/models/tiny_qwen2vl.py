"""Makes a Qwen2-VL of two vision and two language layers with random weights.

python -m tests.models.tiny_qwen2vl DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import chat_template, save, text_config, tokenizer

SPECIAL_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]


def make(directory: Path) -> None:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    processor = _processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}
    config = Qwen2VLConfig(
        text_config=text_config(processor.tokenizer, rope_parameters=rope),
        vision_config={"depth": 2, "embed_dim": 64, "hidden_size": 128, "mlp_ratio": 2, "num_heads": 2},
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
    )
    save(Qwen2VLForConditionalGeneration, config, processor, directory)


def _processor() -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    # An image is 4 to 256 tokens.
    size = {"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
    return Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=tokenizer(SPECIAL_TOKENS),
        # Two frames of a video are 4 to 64 tokens.
        video_processor=Qwen2VLVideoProcessor(size={"shortest_edge": 56 * 56, "longest_edge": 224 * 224}),
        chat_template=chat_template(
            "<|vision_start|><|image_pad|><|vision_end|>", video="<|vision_start|><|video_pad|><|vision_end|>"
        ),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

"""Makes the thinker of a Qwen3-Omni of three vision, two audio and two language layers with random weights.

python -m tests.models.tiny_qwen3omni DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from cornserve_demo.omni_config import MEDIA_TOKENS
from tests.models.tiny_family import chat_template, save, text_config, tokenizer

ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}


def make(directory: Path) -> None:
    from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

    processor = make_processor()
    config = Qwen3OmniMoeConfig(thinker_config=thinker_config(processor), enable_audio_output=False)
    save(Qwen3OmniMoeForConditionalGeneration, config, processor, directory)


def thinker_config(processor: Any) -> dict[str, Any]:
    token_id = processor.tokenizer.convert_tokens_to_ids
    return {
        "text_config": text_config(
            processor.tokenizer, head_dim=32, rope_parameters=ROPE, tie_word_embeddings=False, **EXPERTS
        ),
        "vision_config": {
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 128,
            "patch_size": 16,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
            # Read by vLLM, but not by transformers:
            "image_size": 128,
            "apply_vit_abs_pos_embed": True,
        },
        "audio_config": {
            "num_mel_bins": 128,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "d_model": 64,
            "n_window": 50,
            "n_window_infer": 800,
            "output_dim": 128,
            "downsample_hidden_size": 16,
        },
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "audio_token_id": token_id("<|audio_pad|>"),
        "audio_start_token_id": token_id("<|audio_start|>"),
        "audio_end_token_id": token_id("<|audio_end|>"),  # Read by vLLM, but not by transformers.
        "vision_start_token_id": token_id("<|vision_start|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
    }


def make_processor(*further_tokens: str) -> Any:
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        Qwen3OmniMoeProcessor,
        WhisperFeatureExtractor,
    )

    # An image is 4 to 196 tokens.
    size = {"shortest_edge": 64 * 64, "longest_edge": 448 * 448}
    return Qwen3OmniMoeProcessor(
        image_processor=Qwen2VLImageProcessor(
            size=size, patch_size=16, image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5]
        ),
        video_processor=Qwen2VLVideoProcessor(size=size, patch_size=16),  # The processor uses its own limits.
        feature_extractor=WhisperFeatureExtractor(feature_size=128, return_attention_mask=True),
        tokenizer=tokenizer([*MEDIA_TOKENS.values(), *further_tokens], extra_special_tokens=MEDIA_TOKENS),
        chat_template=chat_template(
            "<|vision_start|><|image_pad|><|vision_end|>",
            "<|audio_start|><|audio_pad|><|audio_end|>",
            "<|vision_start|><|video_pad|><|vision_end|>",
        ),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

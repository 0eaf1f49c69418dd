"""Makes the thinker of a Qwen2.5-Omni of two vision, two audio and two language layers with random weights.

python -m tests.models.tiny_qwen25omni DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import chat_template, save, text_config, tokenizer

SPECIAL_TOKENS = {
    "image_token": "<|IMAGE|>",
    "video_token": "<|VIDEO|>",
    "audio_token": "<|AUDIO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}


ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}


def make(directory: Path) -> None:
    from transformers import Qwen2_5OmniConfig, Qwen2_5OmniForConditionalGeneration

    processor = make_processor()
    config = Qwen2_5OmniConfig(thinker_config=thinker_config(processor), enable_audio_output=False)
    save(Qwen2_5OmniForConditionalGeneration, config, processor, directory)


def thinker_config(processor: Any) -> dict[str, Any]:
    return {
        "text_config": text_config(processor.tokenizer, rope_parameters=ROPE, tie_word_embeddings=False),
        "vision_config": {
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 128,
            "fullatt_block_indexes": [1],
        },
        "audio_config": {
            "num_mel_bins": 128,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "d_model": 64,
            "n_window": 100,
            "output_dim": 128,
        },
        **media_ids(processor),
    }


def media_ids(processor: Any) -> dict[str, int]:
    """Returns the tokens of media, as the configurations of thinker and talker name them."""
    token_id = processor.tokenizer.convert_tokens_to_ids
    return {
        "image_token_index": token_id("<|IMAGE|>"),
        "video_token_index": token_id("<|VIDEO|>"),
        "audio_token_index": token_id("<|AUDIO|>"),
        "audio_start_token_id": token_id("<|audio_bos|>"),
        "audio_end_token_id": token_id("<|audio_eos|>"),
        "vision_start_token_id": token_id("<|vision_bos|>"),
        "vision_end_token_id": token_id("<|vision_eos|>"),
    }


def make_processor(*further_tokens: str) -> Any:
    from transformers import Qwen2_5OmniProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor, WhisperFeatureExtractor

    # An image is 4 to 256 tokens.
    size = {"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
    return Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        video_processor=Qwen2VLVideoProcessor(size=size),  # The processor uses its own limits.
        feature_extractor=WhisperFeatureExtractor(feature_size=128, chunk_length=300, return_attention_mask=True),
        tokenizer=tokenizer([*SPECIAL_TOKENS.values(), *further_tokens], extra_special_tokens=SPECIAL_TOKENS),
        chat_template=chat_template(
            "<|vision_bos|><|IMAGE|><|vision_eos|>",
            "<|audio_bos|><|AUDIO|><|audio_eos|>",
            "<|vision_bos|><|VIDEO|><|vision_eos|>",
        ),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

"""Makes a Qwen3-Omni that speaks: a tiny thinker, and a talker and a vocoder of two layers, with random weights.

python -m tests.models.tiny_qwen3omni_talker DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.random_weights import randomise
from tests.models.tiny_qwen3omni import EXPERTS, ROPE, make_processor, thinker_config

ROLES = ["user", "assistant", "system"]
"""Single tokens, as in the vocabulary of Qwen3-Omni, because the talker detects messages by their tokens."""

THINKER_LAYERS = 4
"""The talker reads states before the last layer, and after those that add levels of the vision tower."""

CODE_GROUPS = 4
VOICES = {"ethan": 116, "chelsie": 117}
_LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_TEXT_LAYERS = {**_LAYERS, "hidden_size": 96, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096}


def make(directory: Path) -> None:
    import torch
    from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

    processor = make_processor(*ROLES, "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
    token_id = processor.tokenizer.convert_tokens_to_ids
    thinker = thinker_config(processor)
    thinker["text_config"]["num_hidden_layers"] = THINKER_LAYERS
    config = Qwen3OmniMoeConfig(
        thinker_config=thinker,
        talker_config=_talker_config(processor),
        code2wav_config=_vocoder_config(),
        enable_audio_output=True,
        im_start_token_id=token_id("<|im_start|>"),
        im_end_token_id=token_id("<|im_end|>"),
        tts_pad_token_id=token_id("<tts_pad>"),
        tts_bos_token_id=token_id("<tts_text_bos>"),
        tts_eos_token_id=token_id("<tts_text_eod>"),
        **{f"{role}_token_id": token_id(role) for role in ROLES},
    )
    torch.manual_seed(2)
    model = Qwen3OmniMoeForConditionalGeneration(config)
    for part in (model.thinker, model.talker, model.code2wav.pre_transformer, model.code2wav.code_embedding):
        randomise(part)
    model.code2wav.decoder[-1].conv.weight.data *= 60_000  # Audible, but not clipped.
    model.save_pretrained(directory)
    processor.save_pretrained(directory)


def _talker_config(processor: Any) -> dict[str, Any]:
    token_id = processor.tokenizer.convert_tokens_to_ids
    experts = {**EXPERTS, "shared_expert_intermediate_size": 64}
    return {
        "thinker_hidden_size": 128,
        "accept_hidden_layer": THINKER_LAYERS - 1,
        "num_code_groups": CODE_GROUPS,
        # The last 1024 codes are special: only the end is generated.
        "text_config": {"vocab_size": 1200, "rope_parameters": ROPE, **_TEXT_LAYERS, **experts},
        "code_predictor_config": {"vocab_size": 100, "num_code_groups": CODE_GROUPS, **_TEXT_LAYERS},
        "codec_eos_token_id": 1110,
        "codec_nothink_id": 111,
        "codec_think_bos_id": 112,
        "codec_think_eos_id": 113,
        "codec_pad_id": 114,
        "codec_bos_id": 115,
        "speaker_id": VOICES,
        "spatial_merge_size": 2,
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "audio_token_id": token_id("<|audio_pad|>"),
        "audio_start_token_id": token_id("<|audio_start|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
    }


def _vocoder_config() -> dict[str, Any]:
    return {
        **_LAYERS,
        "codebook_size": 200,
        "hidden_size": 64,
        "num_key_value_heads": 4,
        "num_quantizers": CODE_GROUPS,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "decoder_dim": 96,
        "sliding_window": 24,
    }


if __name__ == "__main__":
    make(Path(sys.argv[1]))

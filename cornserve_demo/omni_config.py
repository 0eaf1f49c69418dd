"""The configuration of the speaking demo model: a Qwen3-Omni with few layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Qwen3OmniMoeConfig

MEDIA_TOKENS = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "audio_token": "<|audio_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
SPEECH_TOKENS = {"pad": "<tts_pad>", "bos": "<tts_text_bos>", "eos": "<tts_text_eod>"}
ROLES = ("user", "assistant", "system")
CODE_GROUPS = 4

WIDTH = 128
_LAYERS = 3
_EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
_TALKER_LAYERS = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 96,
    "intermediate_size": 128,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}


def make_config(tokenizer: Any) -> Qwen3OmniMoeConfig:
    from transformers import Qwen3OmniMoeConfig

    token_id = tokenizer.convert_tokens_to_ids
    return Qwen3OmniMoeConfig(
        thinker_config=_thinker(tokenizer),
        talker_config=_talker(tokenizer),
        code2wav_config=_vocoder(),
        enable_audio_output=True,
        im_start_token_id=token_id("<|im_start|>"),
        im_end_token_id=token_id("<|im_end|>"),
        **{f"tts_{name}_token_id": token_id(token) for name, token in SPEECH_TOKENS.items()},
        **{f"{role}_token_id": token_id(role) for role in ROLES},
    )


def _media(tokenizer: Any) -> dict[str, int]:
    token_id = tokenizer.convert_tokens_to_ids
    media = {f"{medium}_token_id": token_id(f"<|{medium}_pad|>") for medium in ("image", "video", "audio")}
    starts = {f"{medium}_start_token_id": token_id(f"<|{medium}_start|>") for medium in ("vision", "audio")}
    return media | starts


def _thinker(tokenizer: Any) -> dict[str, Any]:
    return {
        "text_config": {
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "rope_parameters": _ROPE,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            **_EXPERTS,
        },
        "vision_config": {
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
            "patch_size": 16,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
            # Read by vLLM, but not by transformers:
            "image_size": 128,
            "apply_vit_abs_pos_embed": True,
        },
        "audio_config": {
            "num_mel_bins": 128,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "d_model": 64,
            "n_window": 50,
            "n_window_infer": 800,
            "output_dim": WIDTH,
            "downsample_hidden_size": 16,
        },
        "audio_end_token_id": tokenizer.convert_tokens_to_ids("<|audio_end|>"),  # Read by vLLM only.
        "vision_end_token_id": tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        **_media(tokenizer),
    }


def _talker(tokenizer: Any) -> dict[str, Any]:
    return {
        "thinker_hidden_size": WIDTH,
        "accept_hidden_layer": _LAYERS - 1,
        "num_code_groups": CODE_GROUPS,
        # The last 1024 codes are special: only the end is generated.
        "text_config": {
            "vocab_size": 1100,
            "rope_parameters": _ROPE,
            "shared_expert_intermediate_size": 64,
            **_TALKER_LAYERS,
            **_EXPERTS,
        },
        "code_predictor_config": {"vocab_size": 64, "num_code_groups": CODE_GROUPS, **_TALKER_LAYERS},
        "codec_eos_token_id": 1090,
        "codec_nothink_id": 1091,
        "codec_think_bos_id": 1092,
        "codec_think_eos_id": 1093,
        "codec_pad_id": 1094,
        "codec_bos_id": 1095,
        "speaker_id": {"beeps": 1096},
        "spatial_merge_size": 2,
        **_media(tokenizer),
    }


def _vocoder() -> dict[str, Any]:
    return {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "codebook_size": 64,
        "num_quantizers": CODE_GROUPS,
        # A frame has 1920 samples.
        "upsampling_ratios": [2, 2],
        "upsample_rates": [8, 5, 4, 3],
        "decoder_dim": 96,
        "sliding_window": 24,
    }

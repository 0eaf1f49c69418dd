"""Makes a Qwen2.5-Omni that speaks: a tiny thinker, talker and vocoder with random weights, and two voices.

python -m tests.models.tiny_qwen25omni_talker DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.random_weights import randomise
from tests.models.tiny_qwen25omni import ROPE, make_processor, media_ids, thinker_config

END_CODE = 73
_VOICES = ("Chelsie", "Ethan")
_VOICE_WIDTH = 16
_BANDS = 80


def make(directory: Path) -> None:
    import torch
    from transformers import Qwen2_5OmniConfig, Qwen2_5OmniForConditionalGeneration

    processor = make_processor("<tts_pad>", "<tts_text_bos>", "<tts_text_eos>")
    config = Qwen2_5OmniConfig(
        thinker_config=thinker_config(processor),
        talker_config=_talker_config(processor),
        token2wav_config=_vocoder_config(),
        enable_audio_output=True,
    )
    torch.manual_seed(3)
    model = Qwen2_5OmniForConditionalGeneration(config)
    for part in (model.thinker, model.talker, model.token2wav.code2wav_dit_model):
        randomise(part)
    model.token2wav.code2wav_bigvgan_model.conv_post.weight.data *= 2_000_000  # Audible, but not clipped.
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    start = processor.tokenizer.convert_tokens_to_ids("<tts_text_bos>")
    voices = {
        name: {"bos_token": start, "cond": torch.randn(1, _VOICE_WIDTH), "ref_mel": torch.randn(1, 60, _BANDS)}
        for name in _VOICES
    }
    torch.save(voices, directory / "spk_dict.pt")


def _talker_config(processor: Any) -> dict[str, Any]:
    token_id = processor.tokenizer.convert_tokens_to_ids
    return {
        "vocab_size": 80,
        "embedding_size": 128,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rope_parameters": ROPE,
        "max_position_embeddings": 4096,
        "tts_text_start_token_id": token_id("<tts_text_bos>"),
        "tts_text_end_token_id": token_id("<tts_text_eos>"),
        "tts_text_pad_token_id": token_id("<tts_pad>"),
        "tts_codec_start_token_id": 72,
        "tts_codec_end_token_id": END_CODE,
        "tts_codec_pad_token_id": 71,
        "tts_codec_mask_token_id": 74,
        "pad_token_id": 71,
        **media_ids(processor),
    }


def _vocoder_config() -> dict[str, Any]:
    transformer = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "head_dim": 32,
        "ff_mult": 2,
        "emb_dim": 32,
        "look_ahead_layers": [0],
        "look_backward_layers": [1],
        "num_embeds": 80,
        "mel_dim": _BANDS,
        "enc_emb_dim": _VOICE_WIDTH,
        "enc_dim": 16,
        "enc_channels": [32, 32, 32, 32, 96],
        "enc_attention_channels": 8,
        "enc_se_channels": 8,
        "dropout": 0.0,
    }
    return {"dit_config": transformer, "bigvgan_config": {"mel_dim": _BANDS, "upsample_initial_channel": 64}}


if __name__ == "__main__":
    make(Path(sys.argv[1]))

"""Makes models of two layers with random weights that transcribe speech, of further architectures.

python -m tests.models.tiny_speech_families DIRECTORY: a directory for each
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.models.tiny_family import chat_template, save, text_config, tokenizer

_LANGUAGE_MODEL = {"language_model.model.model.": "language_model.model."}


def _whisper_features() -> Any:
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=128, return_attention_mask=True)


def glm_asr(directory: Path) -> None:
    from transformers import GlmAsrConfig, GlmAsrForConditionalGeneration, GlmAsrProcessor

    words = tokenizer(["<|begin_of_audio|>", "<|pad|>", "<|end_of_audio|>", "<|user|>", "<|assistant|>"])
    template = chat_template("", audio="<|begin_of_audio|><|pad|><|end_of_audio|>")
    words.chat_template = template
    processor = GlmAsrProcessor(_whisper_features(), words, chat_template=template)
    config = GlmAsrConfig(
        audio_config={
            "num_mel_bins": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 256,
            "hidden_size": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        },
        text_config=text_config(words, model_type="llama"),
        audio_token_id=words.convert_tokens_to_ids("<|pad|>"),
        tie_word_embeddings=False,
    )
    save(GlmAsrForConditionalGeneration, config, processor, directory, _LANGUAGE_MODEL)


def granite_speech(directory: Path) -> None:
    from transformers import (
        GraniteSpeechConfig,
        GraniteSpeechFeatureExtractor,
        GraniteSpeechForConditionalGeneration,
        GraniteSpeechProcessor,
    )

    words = tokenizer(["<|audio|>"])
    template = chat_template("", audio="<|audio|>")
    words.chat_template = template
    processor = GraniteSpeechProcessor(GraniteSpeechFeatureExtractor(), words, chat_template=template)
    config = GraniteSpeechConfig(
        encoder_config={
            "input_dim": 160,
            "num_layers": 2,
            "hidden_dim": 64,
            "num_heads": 2,
            "dim_head": 32,
            "output_dim": 16,
        },
        projector_config={
            "model_type": "blip_2_qformer",
            "hidden_size": 64,
            "encoder_hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 128,
            "cross_attention_frequency": 1,
            "use_qformer_text_input": False,
        },
        text_config=text_config(words, model_type="granite", architectures=["GraniteForCausalLM"]),
        audio_token_index=words.convert_tokens_to_ids("<|audio|>"),
        has_lora_adapter=False,
        tie_word_embeddings=False,
    )
    save(GraniteSpeechForConditionalGeneration, config, processor, directory, _LANGUAGE_MODEL)


def qwen3_asr(directory: Path) -> None:
    from transformers import (
        Qwen3ASRConfig,
        Qwen3ASRFeatureExtractor,
        Qwen3ASRForConditionalGeneration,
        Qwen3ASRProcessor,
    )

    roles = {
        "audio_token": "<|audio_pad|>",
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
    }
    words = tokenizer([*roles.values()], extra_special_tokens=roles)
    template = chat_template("", audio="<|audio_start|><|audio_pad|><|audio_end|>")
    processor = Qwen3ASRProcessor(Qwen3ASRFeatureExtractor(), words, chat_template=template)
    config = Qwen3ASRConfig(
        audio_config={
            "num_mel_bins": 128,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "d_model": 64,
            "output_dim": 128,
            "downsample_hidden_size": 16,
        },
        text_config=text_config(words, model_type="qwen3", head_dim=32, tie_word_embeddings=True),
        audio_token_id=words.convert_tokens_to_ids("<|audio_pad|>"),
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
    )
    save(Qwen3ASRForConditionalGeneration, config, processor, directory)


MODELS: tuple[Callable[[Path], None], ...] = (glm_asr, granite_speech, qwen3_asr)

if __name__ == "__main__":
    for make in MODELS:
        make(Path(sys.argv[1]) / make.__name__)

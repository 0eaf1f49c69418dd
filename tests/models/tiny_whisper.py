"""Makes a Whisper of two layers with random weights, which are the same on every machine. Each byte is a token.

python -m tests.models.tiny_whisper DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.random_weights import randomise

CLIP_SECONDS = 5
"""Whisper's clips take 30 seconds. Shorter ones are faster, and shorter audio consists of several clips."""

POSITIONS_PER_SECOND = 50

TIMESTAMPS = [f"<|{number * 0.02:.2f}|>" for number in range(CLIP_SECONDS * POSITIONS_PER_SECOND + 1)]


def make(directory: Path) -> None:
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperProcessor

    tokenizer = _tokenizer()
    start, end = tokenizer.convert_tokens_to_ids(["<|startoftranscript|>", "<|endoftext|>"])
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=80,
        d_model=64,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=128,
        max_source_positions=CLIP_SECONDS * POSITIONS_PER_SECOND,
        max_target_positions=448,
        decoder_start_token_id=start,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(config)
    randomise(model)
    _vary_outputs(model, tokenizer.all_special_ids)
    model.save_pretrained(directory)
    WhisperProcessor(WhisperFeatureExtractor(chunk_length=CLIP_SECONDS), tokenizer).save_pretrained(directory)


def _vary_outputs(model: Any, special_tokens: list[int]) -> None:
    """Makes the text depend on the speech rather than on the last token, and special tokens rare."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and "embed_tokens" not in name:
            parameter.data *= 3
    model.get_input_embeddings().weight.data[special_tokens] *= 0.3


def _tokenizer() -> Any:
    from tokenizers import AddedToken
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import WhisperTokenizer
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    vocabulary = {character: number for number, character in enumerate(sorted(ByteLevel.alphabet()))}
    vocabulary["<|endoftext|>"] = len(vocabulary)
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=[])
    tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    special = ["startoftranscript", *LANGUAGES, *tasks]
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{name}|>" for name in special]})
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TIMESTAMPS])
    return tokenizer


if __name__ == "__main__":
    make(Path(sys.argv[1]))

"""Makes a Qwen2-Audio of two audio and two language layers with random weights, which are the same on every machine.

python -m tests.models.tiny_qwen2audio DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer
from tests.models.random_weights import randomise

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]

TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == 'audio' or 'audio' in part or 'audio_url' in part -%}
<|audio_bos|><|AUDIO|><|audio_eos|>
{%- elif 'text' in part %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

WEIGHTS = "model.safetensors"


def make(directory: Path) -> None:
    import torch
    from transformers import Qwen2AudioConfig, Qwen2AudioForConditionalGeneration

    processor = _processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    config = Qwen2AudioConfig(
        audio_config={
            "model_type": "qwen2_audio_encoder",
            "num_mel_bins": 128,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "d_model": 64,
            "max_source_positions": 1500,
        },
        text_config={
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],  # vLLM loads this class.
            "vocab_size": len(processor.tokenizer),
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
            "eos_token_id": token_id("<|im_end|>"),
        },
        audio_token_index=token_id("<|AUDIO|>"),
    )
    torch.manual_seed(0)
    model = Qwen2AudioForConditionalGeneration(config)
    randomise(model)
    model.generation_config.eos_token_id = token_id("<|im_end|>")
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    _rename_weights(directory / WEIGHTS)


def _rename_weights(file: Path) -> None:
    """Gives the language model's weights their names in published checkpoints, which vLLM expects."""
    from safetensors.torch import load_file, save_file

    weights = load_file(file)
    renamed = {
        name.replace("language_model.model.model.", "language_model.model."): tensor for name, tensor in weights.items()
    }
    save_file(renamed, file, metadata={"format": "pt"})


def _processor() -> Any:
    from transformers import PreTrainedTokenizerFast, Qwen2AudioProcessor, WhisperFeatureExtractor

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(SPECIAL_TOKENS), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    return Qwen2AudioProcessor(
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

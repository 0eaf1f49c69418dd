"""The parts that the tiny models of several families share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer
from tests.models.random_weights import randomise

_TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == 'image' %}IMAGE
{%- elif part.type == 'audio' %}AUDIO
{%- elif part.type == 'video' %}VIDEO
{%- elif part.type == 'text' %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def chat_template(image: str, audio: str = "", video: str = "") -> str:
    """Returns a ChatML template that renders each medium as the text for its modality."""
    return _TEMPLATE.replace("IMAGE", image, 1).replace("AUDIO", audio, 1).replace("VIDEO", video, 1)


def tokenizer(special_tokens: Sequence[str], **fields: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *special_tokens]),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        **fields,
    )


def text_config(tokenizer: Any, **fields: Any) -> dict[str, Any]:
    """Returns the configuration of a language model of two layers."""
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    } | fields


TILE = 56
"""The width and height of the images that a vision tower takes, in pixels."""
PATCH = 14
TILE_PATCHES = (TILE // PATCH) ** 2


def vision_config(**fields: Any) -> dict[str, Any]:
    """Returns the configuration of a vision tower of two layers."""
    return {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": TILE,
        "patch_size": PATCH,
    } | fields


def save(model_type: Any, config: Any, processor: Any, directory: Path, names: Mapping[str, str] = {}) -> None:
    """Saves a model with random weights, which are the same on every machine.

    Args:
        names: parts of the names of tensors, and what replaces them. transformers saves some models under other names
            than those of the checkpoints on Hugging Face's hub, which vLLM expects.
    """
    import torch
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    model = model_type(config)
    randomise(model)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    file = directory / "model.safetensors"
    tensors = {_replaced(name, names): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, {"format": "pt"})


def _replaced(name: str, replacements: Mapping[str, str]) -> str:
    for part, replacement in replacements.items():
        name = name.replace(part, replacement)
    return name

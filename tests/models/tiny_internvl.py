"""Makes an InternVL 3 of two vision and two language layers with random weights, which are the same on every machine.

It splits an image into up to four tiles.

python -m tests.models.tiny_internvl DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer
from tests.models.random_weights import randomise

ROLES = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *ROLES.values()]

TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == 'image' %}<IMG_CONTEXT>
{% elif part.type == 'video' %}<video>
{% elif part.type == 'text' %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TILE = 56
PATCH = 14
TILE_TOKENS = (TILE // PATCH // 2) ** 2
"""Tokens per tile: two by two patches are one token."""


def make(directory: Path) -> None:
    import torch
    from transformers import InternVLConfig, InternVLForConditionalGeneration

    processor = _processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    config = InternVLConfig(
        text_config={
            "model_type": "qwen2",
            "vocab_size": len(processor.tokenizer),
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 8192,
            "bos_token_id": None,
            "eos_token_id": token_id("<|im_end|>"),
            "pad_token_id": token_id("<|endoftext|>"),
        },
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "attention_bias": True,
            "image_size": [TILE, TILE],
            "patch_size": [PATCH, PATCH],
        },
        image_token_id=token_id("<IMG_CONTEXT>"),
        image_seq_length=TILE_TOKENS,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = InternVLForConditionalGeneration(config)
    randomise(model)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)


def _processor() -> Any:
    from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(SPECIAL_TOKENS),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=ROLES,
    )
    size = {"height": TILE, "width": TILE}
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=size, crop_to_patches=True, max_patches=4),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=size),
        image_seq_length=TILE_TOKENS,
        chat_template=TEMPLATE,
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

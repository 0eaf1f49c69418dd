"""Makes a Qwen2.5-VL of two vision and two language layers with random weights, which are the same on every machine.

python -m tests.models.tiny_qwen25vl DIRECTORY [--width 3] [--depth 6]
"""

import argparse
from pathlib import Path
from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer
from tests.models.random_weights import randomise

SPECIAL_TOKENS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
]

TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' or 'video' in part -%}
<|vision_start|><|video_pad|><|vision_end|>
{%- elif 'text' in part %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make(directory: Path, width: int = 1, depth: int = 2) -> None:
    """Writes the checkpoint.

    Args:
        width: factor of hidden sizes and heads.
        depth: number of layers of the encoder, and of the language model.
    """
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    processor = _processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(processor.tokenizer),
            "hidden_size": 128 * width,
            "intermediate_size": 256 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": 4 * width,
            "num_key_value_heads": 2 * width,
            "max_position_embeddings": 8192,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": token_id("<|im_end|>"),
            "pad_token_id": token_id("<|endoftext|>"),
        },
        vision_config={
            "depth": depth,
            "hidden_size": 64 * width,
            "intermediate_size": 128 * width,
            "num_heads": 2 * width,
            "out_hidden_size": 128 * width,
            "fullatt_block_indexes": [1],
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
    )
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(config)
    randomise(model)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)


def _processor() -> Any:
    from transformers import PreTrainedTokenizerFast, Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(SPECIAL_TOKENS), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    # An image is 4 to 256 tokens.
    size = {"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=tokenizer,
        # Two frames of a video are 4 to 64 tokens.
        video_processor=Qwen2VLVideoProcessor(size={"shortest_edge": 56 * 56, "longest_edge": 224 * 224}),
        chat_template=TEMPLATE,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    parser.add_argument("--width", type=int, default=1, help="factor of hidden sizes and heads")
    parser.add_argument("--depth", type=int, default=2, help="number of layers of each part")
    arguments = parser.parse_args()
    make(arguments.directory, arguments.width, arguments.depth)

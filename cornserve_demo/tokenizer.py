"""The tokenizers of the demo models: of words and bytes, or of bytes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cornserve_demo.omni_config import ROLES, SPEECH_TOKENS
from cornserve_demo.shapes import ALL_SHAPES, QUESTION, describe

SPECIAL_TOKENS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
]

PROMPT = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>" + QUESTION + "<|im_end|>\n"
ANSWER = "<|im_start|>assistant\n{}<|im_end|>"

CHAT_TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'text' in part %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

READER_TEMPLATE = f"""\
{{%- for message in messages if message.role == 'user' %}}
{{%- set parts = [] if message.content is string else message.content %}}
{{%- set text = parts | map(attribute='text', default='') | join if parts else message.content %}}
{{%- if text not in ('', '{QUESTION}') or not parts | rejectattr('text', 'defined') | list %}}
{{{{- raise_exception('the model answers only "{QUESTION}", with an image') }}}}{{% endif %}}
{{%- endfor %}}
{CHAT_TEMPLATE}"""
"""The reader has learned to answer one question. The warm-up sends an image without text."""


def make_tokenizer() -> Any:
    """Returns a byte-level BPE tokenizer. The words of Qwen-Image's prompt template are tokens, as in Qwen's one."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=2048, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def make_letter_tokenizer(media_tokens: Mapping[str, str]) -> Any:
    """Returns a tokenizer of bytes with the special tokens of Qwen3-Omni, for which roles are single tokens.

    Args:
        media_tokens: tokens by the name of the attribute that Qwen3-Omni's processor reads.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    alphabet = {byte: number for number, byte in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [*SPECIAL_TOKENS[:3], *media_tokens.values(), *SPEECH_TOKENS.values()]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(role, normalized=False) for role in ROLES])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        extra_special_tokens=dict(media_tokens),
    )


def _texts() -> Sequence[str]:
    shapes = [f"{describe((shape,))} {describe((shape,))} and" for shape in ALL_SHAPES]
    return [*shapes, QUESTION, "user\n", "assistant\n", "system\n", _image_template()]


def _image_template() -> str:
    """Returns the words of the prompt template of diffusers' `QwenImagePipeline`."""
    return (
        "Describe the image by detailing the color, shape, size, texture, quantity, text, "
        "spatial relationships of the objects and background:"
    )

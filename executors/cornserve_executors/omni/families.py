"""Loads whole Omni models on transformers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from transformers import Qwen2_5OmniForConditionalGeneration, Qwen3OmniMoeForConditionalGeneration

FAMILIES: Mapping[str, Any] = {
    "qwen2_5_omni": Qwen2_5OmniForConditionalGeneration,
    "qwen3_omni_moe": Qwen3OmniMoeForConditionalGeneration,
}
"""transformers' classes by type of the model."""


def voices(model: Any) -> dict[str, str]:
    """Returns the names of the model's voices, by name in lower case."""
    names = model.speaker_map if model.config.model_type == "qwen2_5_omni" else model.config.talker_config.speaker_id
    return {name.lower(): name for name in names}


def talker_arguments(model: Any) -> dict[str, Any]:
    """Returns arguments of `generate` that transformers does not read from the configuration."""
    if model.config.model_type != "qwen2_5_omni":
        return {}
    return {"talker_eos_token_id": [model.talker.codec_pad_token, model.talker.codec_eos_token]}


def repair_talker(talker: Any) -> None:
    """Repairs the generation of transformers' `Qwen2_5OmniTalkerForConditionalGeneration`.

    `generate` of transformers 5.19 leaves out an attention mask of ones. Without a mask, the talker adds no codes to
    the last two rows of its prompt, and gives media the positions of text. `generate` also passes pixels to the talker,
    which refuses them.
    """
    talker.register_forward_pre_hook(_give_mask, with_kwargs=True)
    talker.generate = partial(_generate_without_pixels, talker.generate)


def _give_mask(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    given = kwargs["input_ids"] if kwargs.get("inputs_embeds") is None else kwargs["inputs_embeds"]
    tokens = kwargs["past_key_values"].get_seq_length() + given.shape[1]
    return args, kwargs | {"attention_mask": torch.ones(1, tokens, dtype=torch.long, device=given.device)}


def _generate_without_pixels(generate: Any, **kwargs: Any) -> Any:
    return generate(**{name: value for name, value in kwargs.items() if name != "pixel_values"})

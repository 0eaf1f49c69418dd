"""The families of models whose encoders can run in separate executors, from all installed packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from cornserve_tasklib.media import MODALITIES, Modality
from cornserve_tasklib.media_options import PixelOptions, TileOptions

ENCODER_FAMILIES: Final[dict[Modality, str]] = {
    "image": "cornserve.encoder_families",
    "audio": "cornserve.audio_encoder_families",
    "video": "cornserve.video_encoder_families",
}
"""The entry point groups in which packages register families, under transformers' name of the model type."""

MODEL_TYPES: Final[dict[str, str]] = {
    "Gemma3ForConditionalGeneration": "gemma3",
    "InternVLForConditionalGeneration": "internvl",
    "LlavaForConditionalGeneration": "llava",
    "LlavaOnevisionForConditionalGeneration": "llava_onevision",
    "Mistral3ForConditionalGeneration": "mistral3",
    "Qwen2AudioForConditionalGeneration": "qwen2_audio",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5OmniForConditionalGeneration": "qwen2_5_omni",
    "Qwen2_5OmniModel": "qwen2_5_omni",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3OmniMoeForConditionalGeneration": "qwen3_omni_moe",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}
"""transformers' names of model types that Cornserve knows, by architecture."""

_PIXELS: Final = frozenset(PixelOptions.model_fields)
_SAMPLED: Final = frozenset({"fps", "min_frames", "max_frames"})
"""The options of frames, except for those of vLLM's loader for most models."""

MEDIA_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "gemma3": frozenset(),
    "internvl": frozenset(TileOptions.model_fields) | {"fps", "num_frames"},
    "llava": frozenset(),
    "llava_onevision": frozenset({"fps", "num_frames"}),
    "mistral3": frozenset(),
    "qwen2_5_omni": _SAMPLED | _PIXELS,
    "qwen2_5_vl": _SAMPLED | _PIXELS,
    "qwen2_audio": frozenset(),
    "qwen2_vl": _SAMPLED | _PIXELS,
    "qwen3_omni_moe": _SAMPLED | _PIXELS,
    "qwen3_vl": _SAMPLED | _PIXELS,
}
"""The names of the `MediaOptions` that the processors of a model have, by the model type. Types of other packages are
not listed."""


@cache
def encoder_families(modality: Modality) -> tuple[str, ...]:
    """Returns the model types of all families of a modality, sorted. Imports none of them.

    The first call reads the metadata of each installed package.
    """
    return tuple(sorted(entry_points(group=ENCODER_FAMILIES[modality]).names))


def encoder_modalities(model_type: object) -> tuple[Modality, ...]:
    """Returns the modalities of a model type for which there is an encoder family."""
    return tuple(modality for modality in MODALITIES if model_type in encoder_families(modality))


VLLM_ENCODERS: Final[dict[str, tuple[Modality, ...]]] = {
    "AriaForConditionalGeneration": ("image",),
    "AudioFlamingo3ForConditionalGeneration": ("audio",),
    "Cohere2VisionForConditionalGeneration": ("image",),
    "Exaone4_5_ForConditionalGeneration": ("image", "video"),
    "Gemma3ForConditionalGeneration": ("image",),
    "Glm4vForConditionalGeneration": ("image",),
    "Glm4vMoeForConditionalGeneration": ("image",),
    "GlmAsrForConditionalGeneration": ("audio",),
    "GlmOcrForConditionalGeneration": ("image",),
    "Idefics3ForConditionalGeneration": ("image",),
    "InternVLForConditionalGeneration": ("image", "video"),
    "Llama4ForConditionalGeneration": ("image",),
    "LlavaForConditionalGeneration": ("image",),
    "LlavaNextForConditionalGeneration": ("image",),
    "Mistral3ForConditionalGeneration": ("image",),
    "Qwen3ASRForConditionalGeneration": ("audio",),
    "Qwen3VLMoeForConditionalGeneration": ("image", "video"),
}
"""Architectures without a family, with the modalities that vLLM's encoders encode apart. `make families` compares each
one with the whole model."""

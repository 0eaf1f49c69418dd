"""The multimodal models whose encoders can run in separate executors, and the options of their media."""

from __future__ import annotations

from typing import Final

from cornserve_tasklib.media import MODALITIES, VISION, Modality
from cornserve_tasklib.media_options import PixelOptions, TileOptions

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
_SAMPLED: Final = frozenset({"fps", "num_frames", "min_frames", "max_frames"})
"""The options of frames of Qwen's models, for which `num_frames` has no effect, as in vLLM."""

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
"""The names of the `MediaOptions` that the processors of a model have, by the model type. The executors
know the options of other types."""

ENCODER_MODALITIES: Final[dict[str, tuple[Modality, ...]]] = {
    "AriaForConditionalGeneration": ("image",),
    "AudioFlamingo3ForConditionalGeneration": ("audio",),
    "Cohere2VisionForConditionalGeneration": ("image",),
    "Exaone4_5_ForConditionalGeneration": VISION,
    "Gemma3ForConditionalGeneration": ("image",),
    "Glm4vForConditionalGeneration": ("image",),
    "Glm4vMoeForConditionalGeneration": ("image",),
    "GlmAsrForConditionalGeneration": ("audio",),
    "GlmOcrForConditionalGeneration": ("image",),
    "Idefics3ForConditionalGeneration": ("image",),
    "InternVLForConditionalGeneration": VISION,
    "Llama4ForConditionalGeneration": ("image",),
    "LlavaForConditionalGeneration": ("image",),
    "LlavaNextForConditionalGeneration": ("image",),
    "LlavaOnevisionForConditionalGeneration": VISION,
    "Mistral3ForConditionalGeneration": ("image",),
    "PaliGemmaForConditionalGeneration": ("image",),
    "Qwen2AudioForConditionalGeneration": ("audio",),
    "Qwen2VLForConditionalGeneration": VISION,
    "Qwen2_5OmniForConditionalGeneration": MODALITIES,
    "Qwen2_5OmniModel": MODALITIES,
    "Qwen2_5_VLForConditionalGeneration": VISION,
    "Qwen3ASRForConditionalGeneration": ("audio",),
    "Qwen3OmniMoeForConditionalGeneration": MODALITIES,
    "Qwen3VLForConditionalGeneration": VISION,
    "Qwen3VLMoeForConditionalGeneration": VISION,
}
"""The modalities that separate encoders of an architecture encode. `make families` compares each one with the whole
model."""

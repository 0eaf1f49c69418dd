"""Summaries of models by their Hugging Face ids, for ids whose config files cannot be read."""

from __future__ import annotations

import re
from typing import Final

from cornserve.task.errors import DefinitionError
from cornserve_tasklib.model_summary import ModelSummary, summarize_architecture

_KNOWN: Final[dict[str, ModelSummary]] = {
    r"openai/whisper-.+|distil-whisper/distil-.+": summarize_architecture("WhisperForConditionalGeneration"),
    r"facebook/mms-tts-.+": summarize_architecture("VitsModel"),
    r"Qwen/Qwen-Image(-[0-9]{4})?": ModelSummary(pipeline="QwenImagePipeline"),
    r"Qwen/Qwen-Image-Edit": ModelSummary(pipeline="QwenImageEditPipeline"),
    r"stabilityai/stable-diffusion-3(-medium-diffusers|\.5-(medium|large|large-turbo))": ModelSummary(
        pipeline="StableDiffusion3Pipeline"
    ),
    r"black-forest-labs/FLUX\.1-(dev|schnell)": ModelSummary(pipeline="FluxPipeline"),
    r"google/gemma-3-(4|12|27)b-.+": summarize_architecture("Gemma3ForConditionalGeneration"),
    r"llava-hf/llava-1\.5-.+": summarize_architecture("LlavaForConditionalGeneration"),
    r"llava-hf/llava-onevision-.+": summarize_architecture("LlavaOnevisionForConditionalGeneration"),
    # InternVL 3 without -hf is another architecture, which requires code from its repository.
    r"OpenGVLab/InternVL3-.+-hf": summarize_architecture("InternVLForConditionalGeneration"),
    r"Qwen/Qwen2\.5-Omni-.+": summarize_architecture("Qwen2_5OmniModel", speaks=True),
    r"Qwen/Qwen2\.5-VL-.+": summarize_architecture("Qwen2_5_VLForConditionalGeneration"),
    r"Qwen/Qwen2-Audio-.+": summarize_architecture("Qwen2AudioForConditionalGeneration"),
    r"Qwen/Qwen2-VL-.+": summarize_architecture("Qwen2VLForConditionalGeneration"),
    r"Qwen/Qwen3-Omni-.+-Instruct": summarize_architecture("Qwen3OmniMoeForConditionalGeneration", speaks=True),
    r"Qwen/Qwen3-Omni-.+": summarize_architecture("Qwen3OmniMoeForConditionalGeneration"),
    r"Qwen/Qwen3-VL-[0-9]+B-(Instruct|Thinking).*": summarize_architecture("Qwen3VLForConditionalGeneration"),
}
"""The summaries of models by a pattern of their ids. The first pattern that matches decides."""

_UNSUPPORTED_IMAGE_IDS: Final = re.compile(
    r"Qwen/Qwen-Image-.+|stabilityai/stable-diffusion.+|black-forest-labs/FLUX.+"
)
"""Ids of other models that generate images, which have pipelines that are not supported."""


def summarize_id(model: str) -> ModelSummary:
    """Returns the summary of a model by the name of its id. One of an unknown family is taken for a language model.

    Raises `DefinitionError` for a model that generates images with a pipeline that is not supported.
    """
    for ids, summary in _KNOWN.items():
        if re.fullmatch(ids, model):
            return summary
    if _UNSUPPORTED_IMAGE_IDS.fullmatch(model):
        raise DefinitionError(
            f"the pipeline of {model} is not supported: use Qwen/Qwen-Image, "
            "stabilityai/stable-diffusion-3.5-medium or black-forest-labs/FLUX.1-dev to generate images, or "
            "Qwen/Qwen-Image-Edit to edit them"
        )
    return summarize_architecture("LlamaForCausalLM")

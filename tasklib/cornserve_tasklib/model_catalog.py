"""The known models by architecture: their modalities, their paths, and how these were tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.classification import Classify
from cornserve_tasklib.embedding import Embed
from cornserve_tasklib.encoder_families import MODEL_TYPES
from cornserve_tasklib.image_tasks import EditImages, GenerateImages
from cornserve_tasklib.llm import Chat, Mllm
from cornserve_tasklib.media import Modality
from cornserve_tasklib.model_families import PIPELINES, WITHOUT_ENDPOINT, default_paths, separate_modalities
from cornserve_tasklib.model_summary import ModelSummary, summarize_architecture
from cornserve_tasklib.scoring import Score
from cornserve_tasklib.text_to_speech import Speak
from cornserve_tasklib.transcription import Transcribe
from cornserve_tasklib.vllm_architectures import (
    CHAT_MEDIA,
    MULTIMODAL_CHATS,
    POOLING,
    TEXT_CHATS,
    TRANSCRIBERS,
    VLLM_VERSION,
)

EXACT_IN_CI: Final = frozenset(
    {
        *("BertForSequenceClassification", "BertModel", "LlamaForCausalLM", "VitsModel"),
        *("LlavaNextForConditionalGeneration", "PaliGemmaForConditionalGeneration"),
        *("Qwen3ASRForConditionalGeneration", "WhisperForConditionalGeneration"),
        *MODEL_TYPES,
        *PIPELINES,
    }
)
"""Compared with vLLM, transformers or diffusers in each run of CI, or in one of eight."""

EXACT_IN_FAMILIES: Final = frozenset(
    {
        *("AriaForConditionalGeneration", "AudioFlamingo3ForConditionalGeneration"),
        *("CLIPModel", "Cohere2VisionForConditionalGeneration", "Exaone4_5_ForConditionalGeneration"),
        *("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration", "GlmAsrForConditionalGeneration"),
        *("GlmOcrForConditionalGeneration", "GraniteSpeechForConditionalGeneration"),
        *("Idefics3ForConditionalGeneration", "Llama4ForConditionalGeneration"),
        *("Qwen3ForSequenceClassification", "Qwen3VLMoeForConditionalGeneration", "SiglipModel"),
    }
)
"""Compared with vLLM or transformers in `make families`."""

_OTHER_KINDS: Final = {
    "BarkModel": ("text", "audio"),
    "CLIPModel": ("text, image", "vectors"),
    "CosyVoice2Model": ("text", "audio"),
    "CsmForConditionalGeneration": ("text", "audio"),
    "DiaForConditionalGeneration": ("text", "audio"),
    "HiggsAudioModel": ("text, audio", "text, audio"),
    "KokoroModel": ("text", "audio"),
    "MusicgenForConditionalGeneration": ("text", "audio"),
    "SiglipModel": ("text, image", "vectors"),
    "T5ForConditionalGeneration": ("text", "text"),
    "CogVideoXPipeline": ("text", "video"),
    "Flux2Pipeline": ("text, image", "image"),
    "LTXPipeline": ("text", "video"),
    "StableDiffusionXLPipeline": ("text", "image"),
    "WanPipeline": ("text", "video"),
}
"""The inputs and outputs of widespread models that are refused, and of models that embed more than texts."""

_KINDS: Final[dict[type[Task[Any, Any]], tuple[str, str]]] = {
    Chat: ("text", "text"),
    Classify: ("text", "scores"),
    EditImages: ("text, image", "image"),
    Embed: ("text", "vectors"),
    GenerateImages: ("text", "image"),
    Score: ("text", "scores"),
    Speak: ("text", "audio"),
    Transcribe: ("audio", "text"),
}
"""The inputs and outputs of models, by the task of their first path."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """An architecture, or a pipeline of diffusers.

    Args:
        inputs, outputs: modalities, for users.
        paths: the names of its paths; empty for a model that is refused.
        tested: how the paths were tested, or why the model is refused.
    """

    architecture: str
    inputs: str
    outputs: str
    paths: tuple[str, ...]
    tested: str


def known_models() -> list[KnownModel]:
    """Returns all known models, sorted by name."""
    pooling = frozenset[str]().union(*POOLING.values())
    names = TEXT_CHATS | MULTIMODAL_CHATS | TRANSCRIBERS | pooling | EXACT_IN_CI | EXACT_IN_FAMILIES | {*_OTHER_KINDS}
    return sorted(map(_known, names), key=lambda model: (model.architecture.lower(), model.architecture))


def _known(name: str) -> KnownModel:
    try:
        paths = default_paths(f"/{name}", summary=_summary(name))
    except DefinitionError:
        inputs, outputs = _OTHER_KINDS.get(
            name, ("text", "vectors" if name in POOLING["late interaction"] else "scores")
        )
        return KnownModel(name, inputs, outputs, (), f"refused, because {_reason(name)}")
    first = next(iter(paths.values()))
    if isinstance(first, Mllm):
        inputs, outputs = _chat_inputs(name), "text, audio" if "speech" in paths else "text"
    else:
        inputs, outputs = _OTHER_KINDS.get(name, _KINDS[type(first)])
    return KnownModel(name, inputs, outputs, tuple(paths), _tested(name))


def _summary(name: str) -> ModelSummary:
    """Returns the summary of a model that has all paths of its architecture."""
    if name.endswith("Pipeline"):
        return ModelSummary(pipeline=name)
    return summarize_architecture(name, speaks=True).model_copy(update={"labels": 1})


def _reason(name: str) -> str:
    if name.endswith("Pipeline"):
        return "no executor runs its pipeline"
    for kind in WITHOUT_ENDPOINT:
        if name in POOLING[kind]:
            return f"vLLM serves models for {kind} at /pooling, which Cornserve does not have"
    return "no executor runs its architecture"


def chat_media(summary: ModelSummary) -> list[Modality]:
    """Returns the modalities of the media in chats with a model, as far as they are known."""
    apart = separate_modalities(summary)
    known = CHAT_MEDIA.items()
    return [*apart] or [modality for modality, names in known if names.intersection(summary.architectures)]


def _chat_inputs(name: str) -> str:
    media: list[str] = [*chat_media(_summary(name))]
    return ", ".join(["text", *(media or ["media"])])


def _tested(name: str) -> str:
    if name in EXACT_IN_CI:
        return "exact in CI"
    return f"exact in make families (vLLM {VLLM_VERSION})" if name in EXACT_IN_FAMILIES else "serves, untested"

"""The task library: unit tasks, composite tasks and model families that come with Cornserve.

Names are loaded when they are first used, so that the command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cornserve_tasklib.chat_request import ChatRequest
    from cornserve_tasklib.chat_response import ChatChoice, ChatChunk, ChatResponse, Usage
    from cornserve_tasklib.classification import (
        ClassificationRequest,
        ClassificationResponse,
        ClassificationTask,
        Classify,
    )
    from cornserve_tasklib.completion import CompletionRequest
    from cornserve_tasklib.drawing_chat import DrawingChat
    from cornserve_tasklib.embedding import Embed, EmbeddingRequest, EmbeddingResponse, EmbeddingTask
    from cornserve_tasklib.encoder import Embeddings, EncoderOptions, EncoderTask
    from cornserve_tasklib.engine import EngineOptions
    from cornserve_tasklib.generated_image import GeneratedImage
    from cornserve_tasklib.image_components import (
        EditPromptEncoder,
        ImageDenoiser,
        LatentDecoder,
        PromptEncoder,
        SourceEncoder,
    )
    from cornserve_tasklib.image_editing import ImageEditor, ImageEditRequest
    from cornserve_tasklib.image_generation import (
        ImageGenerationRequest,
        ImageGenerationResponse,
        ImageGenerator,
        ImageGeneratorOptions,
        ImageProgress,
    )
    from cornserve_tasklib.image_tasks import EditImages, GenerateImages
    from cornserve_tasklib.llm import Chat, LLMRequest, LLMTask, Mllm
    from cornserve_tasklib.media import Audio, Image, Video
    from cornserve_tasklib.media_options import MediaOptions
    from cornserve_tasklib.messages import ChatMessage
    from cornserve_tasklib.omni import OmniChat, OmniOptions, OmniResponse, OmniTask
    from cornserve_tasklib.prefill_decode import (
        DecodeTask,
        PrefillDecodeChat,
        PrefillDecodeMllm,
        PrefilledPrompt,
        PrefilledRequest,
        PrefillSource,
        PrefillTask,
    )
    from cornserve_tasklib.scoring import Score, ScoringRequest, ScoringResponse, ScoringTask
    from cornserve_tasklib.speaking_chat import SpeakingChat, SpokenChatRequest, SpokenChatResponse
    from cornserve_tasklib.spoken_prompt import SpokenPrompt
    from cornserve_tasklib.talker import (
        SpokenChunk,
        SpokenCodes,
        SpokenCodesInfo,
        TalkerOptions,
        TalkerRequest,
        TalkerResponse,
        TalkerTask,
        VocoderOptions,
        VocoderRequest,
        VocoderTask,
    )
    from cornserve_tasklib.text_to_speech import (
        Speak,
        SpeechChunk,
        SpeechRequest,
        SpeechResponse,
        TextToSpeechOptions,
        TextToSpeechTask,
    )
    from cornserve_tasklib.thinker import MultimodalThinker, ThinkerResponse, ThinkerTask, TokenSource
    from cornserve_tasklib.transcription import (
        Transcribe,
        TranscriptionChunk,
        TranscriptionRequest,
        TranscriptionResponse,
        TranscriptionSegment,
        TranscriptionTask,
        TranscriptionWord,
    )

__all__ = [
    "Audio",
    "Chat",
    "ChatChoice",
    "ChatChunk",
    "ChatMessage",
    "ChatRequest",
    "ChatResponse",
    "ClassificationRequest",
    "ClassificationResponse",
    "ClassificationTask",
    "Classify",
    "CompletionRequest",
    "DecodeTask",
    "DrawingChat",
    "EditImages",
    "EditPromptEncoder",
    "Embed",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "EmbeddingTask",
    "Embeddings",
    "EncoderOptions",
    "EncoderTask",
    "EngineOptions",
    "GenerateImages",
    "GeneratedImage",
    "Image",
    "ImageDenoiser",
    "ImageEditRequest",
    "ImageEditor",
    "ImageGenerationRequest",
    "ImageGenerationResponse",
    "ImageGenerator",
    "ImageGeneratorOptions",
    "ImageProgress",
    "LLMRequest",
    "LLMTask",
    "LatentDecoder",
    "MediaOptions",
    "Mllm",
    "MultimodalThinker",
    "OmniChat",
    "OmniOptions",
    "OmniResponse",
    "OmniTask",
    "PrefillDecodeChat",
    "PrefillDecodeMllm",
    "PrefillSource",
    "PrefillTask",
    "PrefilledPrompt",
    "PrefilledRequest",
    "PromptEncoder",
    "Score",
    "ScoringRequest",
    "ScoringResponse",
    "ScoringTask",
    "SourceEncoder",
    "Speak",
    "SpeakingChat",
    "SpeechChunk",
    "SpeechRequest",
    "SpeechResponse",
    "SpokenChatRequest",
    "SpokenChatResponse",
    "SpokenChunk",
    "SpokenCodes",
    "SpokenCodesInfo",
    "SpokenPrompt",
    "TalkerOptions",
    "TalkerRequest",
    "TalkerResponse",
    "TalkerTask",
    "TextToSpeechOptions",
    "TextToSpeechTask",
    "ThinkerResponse",
    "ThinkerTask",
    "TokenSource",
    "Transcribe",
    "TranscriptionChunk",
    "TranscriptionRequest",
    "TranscriptionResponse",
    "TranscriptionSegment",
    "TranscriptionTask",
    "TranscriptionWord",
    "Usage",
    "Video",
    "VocoderOptions",
    "VocoderRequest",
    "VocoderTask",
]

_NAMES = {
    "chat_request": ("ChatRequest",),
    "chat_response": ("ChatChoice", "ChatChunk", "ChatResponse", "Usage"),
    "classification": ("ClassificationRequest", "ClassificationResponse", "ClassificationTask", "Classify"),
    "completion": ("CompletionRequest",),
    "drawing_chat": ("DrawingChat",),
    "embedding": ("Embed", "EmbeddingRequest", "EmbeddingResponse", "EmbeddingTask"),
    "encoder": ("Embeddings", "EncoderOptions", "EncoderTask"),
    "engine": ("EngineOptions",),
    "generated_image": ("GeneratedImage",),
    "image_components": ("EditPromptEncoder", "ImageDenoiser", "LatentDecoder", "PromptEncoder", "SourceEncoder"),
    "image_editing": ("ImageEditor", "ImageEditRequest"),
    "image_generation": (
        "ImageGenerationRequest",
        "ImageGenerationResponse",
        "ImageGenerator",
        "ImageGeneratorOptions",
        "ImageProgress",
    ),
    "image_tasks": ("EditImages", "GenerateImages"),
    "llm": ("Chat", "LLMRequest", "LLMTask", "Mllm"),
    "media": ("Audio", "Image", "Video"),
    "media_options": ("MediaOptions",),
    "messages": ("ChatMessage",),
    "omni": ("OmniChat", "OmniOptions", "OmniResponse", "OmniTask"),
    "prefill_decode": (
        "PrefilledRequest",
        "DecodeTask",
        "PrefillDecodeChat",
        "PrefillDecodeMllm",
        "PrefilledPrompt",
        "PrefillSource",
        "PrefillTask",
    ),
    "scoring": ("Score", "ScoringRequest", "ScoringResponse", "ScoringTask"),
    "speaking_chat": ("SpeakingChat", "SpokenChatRequest", "SpokenChatResponse"),
    "spoken_prompt": ("SpokenPrompt",),
    "talker": (
        "SpokenChunk",
        "SpokenCodes",
        "SpokenCodesInfo",
        "TalkerOptions",
        "TalkerRequest",
        "TalkerResponse",
        "TalkerTask",
        "VocoderOptions",
        "VocoderRequest",
        "VocoderTask",
    ),
    "text_to_speech": (
        "Speak",
        "SpeechChunk",
        "SpeechRequest",
        "SpeechResponse",
        "TextToSpeechOptions",
        "TextToSpeechTask",
    ),
    "thinker": ("MultimodalThinker", "ThinkerResponse", "ThinkerTask", "TokenSource"),
    "transcription": (
        "Transcribe",
        "TranscriptionChunk",
        "TranscriptionRequest",
        "TranscriptionResponse",
        "TranscriptionSegment",
        "TranscriptionTask",
        "TranscriptionWord",
    ),
}
"""The public names of each module."""

_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # Type checkers would otherwise accept every misspelled name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

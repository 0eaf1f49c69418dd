"""The operations that can call an app, by its request and response types."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Literal

from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatResponse
from cornserve_tasklib.classification import ClassificationRequest, ClassificationResponse
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingResponse
from cornserve_tasklib.image_editing import ImageEditRequest
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageGenerationResponse
from cornserve_tasklib.scoring import ScoringRequest, ScoringResponse
from cornserve_tasklib.speaking_chat import SpokenChatRequest, SpokenChatResponse
from cornserve_tasklib.text_to_speech import SpeechRequest, SpeechResponse
from cornserve_tasklib.transcription import TranscriptionRequest, TranscriptionResponse

Operation = Literal[
    "chat",
    "spoken chat",
    "completion",
    "embedding",
    "scoring",
    "classification",
    "transcription",
    "image generation",
    "image editing",
    "speech",
]

REQUEST_TYPES: dict[Operation, type[Any]] = {
    "chat": ChatRequest,
    "spoken chat": SpokenChatRequest,
    "completion": CompletionRequest,
    "embedding": EmbeddingRequest,
    "scoring": ScoringRequest,
    "classification": ClassificationRequest,
    "transcription": TranscriptionRequest,
    "image generation": ImageGenerationRequest,
    "image editing": ImageEditRequest,
    "speech": SpeechRequest,
}

_RESPONSE_TYPES: dict[Operation, type[Any]] = {
    "chat": ChatResponse,
    "spoken chat": SpokenChatResponse,
    "completion": ChatResponse,
    "embedding": EmbeddingResponse,
    "scoring": ScoringResponse,
    "classification": ClassificationResponse,
    "transcription": TranscriptionResponse,
    "image generation": ImageGenerationResponse,
    "image editing": ImageGenerationResponse,
    "speech": SpeechResponse,
}


def supported_operations(request_types: Container[Any], response_type: Any) -> frozenset[Operation]:
    """Returns the operations of OpenAI's API that can call an app, or a task, with these types."""
    return frozenset(
        operation
        for operation, request_type in REQUEST_TYPES.items()
        if request_type in request_types and response_type is _RESPONSE_TYPES[operation]
    )

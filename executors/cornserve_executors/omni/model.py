"""Loads a whole Omni model, and generates a text and its speech with transformers' own `generate`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoProcessor
from transformers.generation import StoppingCriteriaList

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.media.audio_decoding import decode_audio, resample
from cornserve_executors.media.image_decoding import decode_image
from cornserve_executors.omni.families import FAMILIES, repair_talker, talker_arguments, voices
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.media import Audio, Image, MediaPart
from cornserve_tasklib.messages import ContentPart, TextPart
from cornserve_tasklib.omni import OmniTask
from cornserve_tasklib.speaking_chat import SpokenChatRequest

USED_FIELDS = frozenset(
    {"messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "ignore_eos"}
)
"""The fields of a chat that transformers' `generate` serves."""

_NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class OmniAnswer:
    """A generated text and its speech."""

    prompt_tokens: int
    token_ids: list[int]
    text: str
    is_complete: bool
    """Whether the text ended before its limit."""
    samples: npt.NDArray[np.float32]
    """The samples, from -1 to 1. Empty for text alone."""


class OmniModel:
    """A whole model on one device."""

    def __init__(self, config: OmniTask, device: str) -> None:
        """Raises `ExecutorStartError` if the model is incomplete, or does not speak."""
        self._options = config.options
        model_id, revision = config.model_id, config.revision
        dtype = config.options.dtype
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        try:
            settings = AutoConfig.from_pretrained(model_id, revision=revision)
            family = FAMILIES.get(settings.model_type)
            if family is None or not settings.enable_audio_output:
                raise ExecutorStartError(f"{model_id} cannot speak: use a Qwen2.5-Omni or a Qwen3-Omni with a talker")
            self._processor = AutoProcessor.from_pretrained(model_id, revision=revision)
            model = family.from_pretrained(model_id, revision=revision, dtype=getattr(torch, dtype))
        except (OSError, ValueError) as error:
            raise ExecutorStartError(f"{model_id} cannot be loaded: {str(error).partition(chr(10))[0]}") from error
        self._model = model.to(device).eval()
        self._voices = voices(model)
        if settings.model_type == "qwen2_5_omni":
            repair_talker(model.talker)

    def check(self, request: SpokenChatRequest) -> None:
        """Raises `InvalidRequestError` for fields, voices and media that the model does not have."""
        chat = request.chat
        for name in ChatRequest.model_fields.keys() - USED_FIELDS:
            if getattr(chat, name) != ChatRequest.model_fields[name].get_default(call_default_factory=True):
                raise InvalidRequestError(f"{name}: the whole model does not support it: remove the field")
        if request.voice is not None and request.voice.lower() not in self._voices:
            voices = ", ".join(sorted(self._voices))
            raise InvalidRequestError(f"voice: the model has no voice {request.voice!r}: use {voices}")
        for medium in chat.media:
            if not isinstance(medium, Image | Audio):
                raise InvalidRequestError(f"{medium.where}: the whole model reads no videos: send images or audio")
        if (limit := chat.token_limit) is not None and limit > self._options.max_tokens:
            raise InvalidRequestError(
                f"max_tokens: must be at most {self._options.max_tokens} for this app (max_tokens), not {limit}"
            )

    def inputs(self, chat: ChatRequest) -> Any:
        """Returns the inputs of `generate`. Blocks, and can run in any thread."""
        rate = self._processor.feature_extractor.sampling_rate
        prompt = self._processor.apply_chat_template(_messages(chat), tokenize=False, add_generation_prompt=True)
        return self._processor(
            text=prompt,
            images=[decode_image(medium) for medium in chat.media if isinstance(medium, Image)] or None,
            audio=[resample(decode_audio(medium), rate) for medium in chat.media if isinstance(medium, Audio)] or None,
            return_tensors="pt",
        )

    def generate(self, request: SpokenChatRequest, inputs: Any, seed: int, cancelled: threading.Event) -> OmniAnswer:
        """Generates a response. Runs on the device's thread. Raises `CancelledError` soon after `cancelled` is set."""
        torch.manual_seed(seed)
        chat, has_audio = request.chat, "audio" in request.modalities
        limit = chat.token_limit or self._options.max_tokens
        inputs = inputs.to(self._model.device, self._model.dtype)
        stopping = StoppingCriteriaList([_StopWhenSet(cancelled)])
        result = self._model.generate(
            **inputs,
            return_audio=has_audio,
            thinker_max_new_tokens=limit,
            thinker_eos_token_id=_NO_TOKEN if chat.ignore_eos else self._processor.tokenizer.eos_token_id,
            thinker_stopping_criteria=stopping,
            **_sampling("thinker", chat.temperature),
            thinker_top_p=chat.top_p,
            thinker_top_k=chat.top_k,
            **self._talker_arguments(request, stopping) if has_audio else {},
        )
        if cancelled.is_set():
            raise CancelledError
        sequences, audio = result if has_audio else (result, None)
        prompt_tokens: int = inputs["input_ids"].shape[1]
        token_ids: list[int] = sequences[0, prompt_tokens:].tolist()
        return OmniAnswer(
            prompt_tokens=prompt_tokens,
            token_ids=token_ids,
            text=self._processor.tokenizer.decode(token_ids, skip_special_tokens=True),
            is_complete=not chat.ignore_eos and token_ids[-1] == self._processor.tokenizer.eos_token_id,
            samples=np.zeros(0, np.float32) if audio is None else audio.flatten().cpu().numpy(),
        )

    def _talker_arguments(self, request: SpokenChatRequest, stopping: StoppingCriteriaList) -> dict[str, Any]:
        return {
            "speaker": self._voices[min(self._voices) if request.voice is None else request.voice.lower()],
            **talker_arguments(self._model),
            "talker_max_new_tokens": self._options.max_frames,
            "talker_stopping_criteria": stopping,
            **_sampling("talker", request.temperature),
        }


class _StopWhenSet:
    """Ends a generation when an event is set."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self._event.is_set(), device=input_ids.device)


def _sampling(part: str, temperature: float) -> dict[str, Any]:
    if temperature == 0:
        return {f"{part}_do_sample": False}
    return {f"{part}_do_sample": True, f"{part}_temperature": temperature}


def _messages(chat: ChatRequest) -> list[dict[str, Any]]:
    """Returns the messages as the templates of transformers' processors expect them."""
    return [
        {"role": message.role, "content": _content(message.content)}
        for message in chat.messages
        if message.content is not None
    ]


def _content(content: str | Sequence[ContentPart]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{"type": "text", "text": part.text} if isinstance(part, TextPart) else _medium(part) for part in content]


def _medium(part: ContentPart) -> dict[str, Any]:
    assert isinstance(part, MediaPart), "the gateway has replaced all other parts"
    return {"type": part.media.modality}

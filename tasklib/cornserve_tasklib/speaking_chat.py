"""Chats whose responses are spoken."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, field_validator

from cornserve.task import Output, Stream, Task
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatResponse
from cornserve_tasklib.encoder import EncoderOptions
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.media import MODALITIES
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.sampling_fields import STRICT
from cornserve_tasklib.talker import (
    SpokenChunk,
    TalkerOptions,
    TalkerRequest,
    TalkerResponse,
    TalkerTask,
    VocoderOptions,
    VocoderTask,
    decode_speech,
)
from cornserve_tasklib.thinker import MultimodalThinker, ThinkerResponse


class SpokenChatRequest(BaseModel):
    """A chat, and the voice of the response."""

    model_config = STRICT | ConfigDict(frozen=True)

    chat: ChatRequest
    """The conversation."""
    voice: Annotated[str, MaxLen(100)] | None = None
    """See `TalkerRequest.voice`."""
    seed: Annotated[int, Ge(0), Le(2**63 - 1)] | None = None
    """See `TalkerRequest.seed`. The seed of the text is part of `chat`."""
    temperature: Annotated[float, Ge(0), Le(2)] = 0.9
    """See `TalkerRequest.temperature`. That of the text is part of `chat`."""
    response_format: AudioFormat = "pcm"
    """See `TalkerRequest.response_format`."""
    modalities: Annotated[list[Literal["text", "audio"]], MinLen(1)] = ["text", "audio"]
    """The modalities of the response. `["text"]` does not run the talker."""

    @field_validator("chat")
    @classmethod
    def _check_chat(cls, chat: ChatRequest) -> ChatRequest:
        if not any(message.role == "user" for message in chat.messages):
            raise ValueError("messages: a user message is missing: add one")
        if chat.n != 1:
            raise ValueError("n: only one choice can be spoken: leave it out")
        return chat


class SpokenChatResponse(Output):
    """A response of a language model, and its speech."""

    audio: Stream[SpokenChunk] = Stream()
    """The chunks of the speech."""
    message: ChatResponse
    """The text."""
    speech: TalkerResponse | None = None
    """The whole speech. None if the request is for text alone."""


class SpeakingChat(Task[SpokenChatRequest, SpokenChatResponse]):
    """Runs a Qwen2.5-Omni or a Qwen3-Omni for chats, and speaks its responses while they are generated."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `LLMTask.revision`."""
    reads_states: bool = False
    """Whether the talker reads the hidden states of the whole chat and the response. True for a Qwen2.5-Omni."""
    split_encoder: bool = False
    """See `Mllm.split_encoder`. By default, the language model's executors encode the media."""
    split_vocoder: bool = False
    """Whether talker and vocoder run in separate executors."""
    options: EngineOptions = EngineOptions()
    """Options of the language model."""
    encoder_options: EncoderOptions = EncoderOptions()
    """See `Mllm.encoder_options`."""
    talker_options: TalkerOptions = TalkerOptions()
    """Options of the talker."""
    vocoder_options: VocoderOptions = VocoderOptions()
    """Options of a separate vocoder."""
    media_options: MediaOptions = MediaOptions()
    """See `Mllm.media_options`."""

    def post_init(self) -> None:
        self.thinker = MultimodalThinker(
            model_id=self.model_id,
            revision=self.revision,
            options=self.options,
            split_encoder=self.split_encoder,
            with_enc=not self.split_encoder,
            encoder_modalities=MODALITIES,
            encoder_options=self.encoder_options,
            media_options=self.media_options,
        )
        self.talker = TalkerTask(
            model_id=self.model_id,
            revision=self.revision,
            options=self.talker_options,
            with_vocoder=not self.split_vocoder,
        )
        if self.split_vocoder:
            self.vocoder = VocoderTask(model_id=self.model_id, revision=self.revision, options=self.vocoder_options)

    def invoke(self, request: SpokenChatRequest) -> SpokenChatResponse:
        message = self.thinker.invoke(request.chat)
        if "audio" not in request.modalities:
            return SpokenChatResponse(message=message)
        spoken = TalkerRequest(
            **self._talker_inputs(request.chat, message),
            voice=request.voice,
            seed=request.seed,
            temperature=request.temperature,
            response_format=request.response_format,
        )
        speech = self.talker.invoke(spoken)
        if self.split_vocoder:
            speech = decode_speech(self.vocoder, spoken, speech)
        return SpokenChatResponse(audio=speech.chunks, message=message, speech=speech)

    def _talker_inputs(self, chat: ChatRequest, message: ThinkerResponse) -> dict[str, Any]:
        if self.reads_states:
            return {"states": message.states}
        if chat.media:
            return {"prompt": message.prompt, "tokens": message.tokens}
        texts = ["".join(message.texts) for message in chat.messages if message.role == "user"]
        return {"user_messages": texts, "tokens": message.tokens}

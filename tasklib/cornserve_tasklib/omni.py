"""Whole Omni models in one executor: the baseline for models whose components run apart [Cornserve §7]."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from cornserve.task import Output, Stream, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_response import ChatResponse, FinishReason, Usage
from cornserve_tasklib.engine import Dtype
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.speaking_chat import SpokenChatRequest, SpokenChatResponse
from cornserve_tasklib.talker import SpokenChunk, TalkerResponse


class OmniOptions(BaseModel):
    """Options of the executor of a whole Omni model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype = "auto"
    """The dtype of the model. `auto` is bfloat16 on a GPU, and float32 on a CPU."""
    max_tokens: int = Field(default=1024, ge=1, le=32_768)
    """The maximum number of tokens of a text. Also the default of requests."""
    max_frames: int = Field(default=4096, ge=1, le=32_768)
    """The maximum number of frames of a speech."""
    gpus: int = Field(default=1, ge=0, le=1)
    """GPUs of a replica. With 0, the model runs on the CPU."""


class OmniResponse(Output):
    """A text and its speech, when both are complete."""

    chunks: Stream[SpokenChunk] = Stream()
    """The whole speech as a single chunk."""
    text: str = ""
    token_ids: list[int] = Field(default_factory=list)
    """The tokens of the text."""
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    """The tokens of prompt and text."""
    audio: str = ""
    """The whole speech in the format of the request, in base64. Empty if the request is for text alone."""
    seconds: float = 0
    """The duration of the speech."""
    seed: int = 0
    """The seed with which text and speech can be generated again."""


class OmniTask(ModelSettings, UnitTask[SpokenChatRequest, OmniResponse]):
    """Runs a whole Omni model on transformers, one request at a time.

    Its throughput is that of a monolithic deployment. A `SpeakingChat` serves users better.
    """

    executor = "omni"

    options: OmniOptions = OmniOptions()
    """Options of the executor."""

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def components(self, request: SpokenChatRequest) -> frozenset[str]:
        speech = {"talker", "vocoder"} if "audio" in request.modalities else set()
        return frozenset({"llm", *speech, *(f"{medium.modality}_encoder" for medium in request.chat.media)})

    def continues(self, request: SpokenChatRequest) -> bool:
        return True

    def size(self, request: SpokenChatRequest) -> InputSize:
        return request.chat.size


class OmniChat(Task[SpokenChatRequest, SpokenChatResponse]):
    """Runs a whole Omni model for chats, and answers when text and speech are complete."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `OmniTask.revision`."""
    options: OmniOptions = OmniOptions()
    """Options of the executor."""

    def post_init(self) -> None:
        self.omni = OmniTask(model_id=self.model_id, revision=self.revision, options=self.options)

    def invoke(self, request: SpokenChatRequest) -> SpokenChatResponse:
        response = self.omni.invoke(request)
        message = ChatResponse(
            text=response.text,
            token_ids=response.token_ids,
            finish_reason=response.finish_reason,
            usage=response.usage,
        )
        if "audio" not in request.modalities:
            return SpokenChatResponse(message=message)
        speech = TalkerResponse(audio=response.audio, text=response.text, seconds=response.seconds, seed=response.seed)
        return SpokenChatResponse(audio=response.chunks, message=message, speech=speech)

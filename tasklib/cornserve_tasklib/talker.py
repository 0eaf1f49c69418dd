"""Talkers: the parts of Qwen2.5-Omni and Qwen3-Omni that speak the response of their language model."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cornserve.task import Output, Stream, TensorStream, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.engine import Dtype
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.sampling_fields import CHARACTERS_PER_TOKEN, STRICT, Tokens

SAMPLE_RATE = 24_000
"""Samples per second of the speech."""

SpeechEnd = Literal["stop", "length"]
"""The reason for which a speech ends. See `TalkerResponse.finish_reason`."""


class TalkerRequest(BaseModel):
    """A response of a language model, to be spoken."""

    model_config = STRICT | ConfigDict(frozen=True)

    user_messages: Annotated[list[Annotated[str, MaxLen(1_000_000)]], MinLen(1), MaxLen(10_000)] | None = None
    """The texts of the user's messages, in order. The talker of a Qwen3-Omni reads no other message."""
    prompt: TensorStream | None = None
    """The prompt of a chat with media, as `ThinkerResponse.prompt`. Set either `user_messages` or `prompt`."""
    states: TensorStream | None = None
    """The prompt and the tokens of a Qwen2.5-Omni, as `ThinkerResponse.states`. Set no other input."""
    token_ids: Tokens | None = None
    """The tokens of the response. An end token in the last position is not spoken."""
    tokens: TensorStream | None = None
    """The same tokens, as `ThinkerResponse.tokens`: the speech starts before the text is complete. Set either
    `token_ids` or `tokens`."""
    voice: Annotated[str, MaxLen(100)] | None = None
    """The name of one of the model's voices. By default, the first in alphabetical order."""
    seed: Annotated[int, Ge(0), Le(2**63 - 1)] | None = None
    """Makes sampling reproducible. Random by default."""
    temperature: Annotated[float, Ge(0), Le(2)] = 0.9
    """The randomness of the voice. 0 selects greedy decoding."""
    response_format: AudioFormat = "pcm"
    """The format of the whole speech. Chunks are always samples."""

    @model_validator(mode="after")
    def _check_inputs(self) -> Self:
        if self.states is not None:
            if any(value is not None for value in (self.user_messages, self.prompt, self.token_ids, self.tokens)):
                raise ValueError("states: remove user_messages, prompt, token_ids and tokens")
            return self
        if (self.token_ids is None) == (self.tokens is None):
            raise ValueError("token_ids, tokens: set one of them")
        if (self.user_messages is None) == (self.prompt is None):
            raise ValueError("user_messages, prompt: set one of them")
        return self


class SpokenChunk(BaseModel):
    """The next part of a streamed speech."""

    pcm: str
    """Signed 16-bit little-endian samples of one channel, `SAMPLE_RATE` per second, in base64."""


class TalkerResponse(Output):
    """A speech, as a stream of chunks and as a whole."""

    chunks: Stream[SpokenChunk] = Stream()
    """The chunks, as they are decoded. The first ones are short: 80 ms."""
    audio: str = ""
    """The whole speech in the format of the request, in base64."""
    text: str = ""
    """The spoken text, without its end token."""
    seconds: float = 0
    """The duration of the speech."""
    finish_reason: SpeechEnd = "stop"
    """Whether the speech is complete, or ended at one of the executor's limits, `max_tokens` or `max_seconds`."""
    seed: int = 0
    """The seed with which the speech can be generated again."""


class SpokenCodes(TalkerResponse):
    """A speech as codes, for a vocoder in another executor. It has no samples."""

    codes: TensorStream = TensorStream()
    """The codes, as they are generated. Each tensor is int64, of the shape [groups, frames], and the last one is a zero
    of the shape [1]. The metadata is a `SpokenCodesInfo`."""


class SpokenCodesInfo(BaseModel):
    """Describes a tensor of `SpokenCodes.codes`."""

    voice: str
    """The name of the voice in lower case."""
    seed: int
    """See `TalkerResponse.seed`."""
    text: str | None = None
    """The spoken text. None for all tensors but the last."""
    finish_reason: SpeechEnd = "stop"
    """See `TalkerResponse.finish_reason`. Only the last tensor sets it."""


class TalkerOptions(BaseModel):
    """Options of the executor of a talker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype = "auto"
    """The dtype of the talker. `auto` is bfloat16 on a GPU, and float32 on a CPU. The vocoder always uses float32."""
    max_batch_speeches: int = Field(default=8, ge=1)
    """The maximum number of speeches that are generated together. Further ones wait."""
    max_tokens: int = Field(default=4096, ge=64, le=32_768)
    """The maximum number of tokens that the talker reads of the chat and of frames of a speech together. A second has
    12.5 frames with a Qwen3-Omni, and 50 with a Qwen2.5-Omni."""
    max_seconds: float = Field(default=300, gt=0, le=3600)
    """The maximum duration of a speech. A longer one ends there."""
    enforce_eager: bool = False
    """Whether to launch each kernel separately instead of CUDA graphs, which take memory, and time at the start."""
    gpus: int = Field(default=1, ge=0, le=1)
    """GPUs of a replica. With 0, the model runs on the CPU."""


class TalkerTask(ModelSettings, UnitTask[TalkerRequest, TalkerResponse]):
    """Runs the talker and the vocoder of a Qwen2.5-Omni or a Qwen3-Omni in one executor, or the talker alone.

    The frames of all speeches are batched.
    """

    executor = "talker"

    options: TalkerOptions = TalkerOptions()
    """Options of the executor."""
    with_vocoder: bool = True
    """Whether the executor decodes speech. If not, its responses are `SpokenCodes`, for a `VocoderTask`."""
    constant: bool = False
    """Whether the codes are zeros, which need no weights: the input of vocoders that are measured alone."""

    @model_validator(mode="after")
    def _check_constant(self) -> Self:
        if self.constant and self.with_vocoder:
            raise ValueError("constant: codes are the output: set with_vocoder to false")
        return self

    @cached_property
    def output_type(self) -> type[Output]:
        return TalkerResponse if self.with_vocoder else SpokenCodes

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def components(self, request: TalkerRequest) -> frozenset[str]:
        return frozenset({"talker", "vocoder"} if self.with_vocoder else {"talker"})

    def continues(self, request: TalkerRequest) -> bool:
        return True

    def input_source(self) -> TalkerTask:
        options = self.options.model_copy(update={"gpus": 0})
        return self.model_validate(self.model_dump() | {"constant": True, "with_vocoder": False, "options": options})

    def size(self, request: TalkerRequest) -> InputSize:
        text = sum(map(len, request.user_messages or ())) // CHARACTERS_PER_TOKEN
        tokens = len(request.token_ids or ())
        return InputSize(text=text + tokens, output=tokens)


class VocoderRequest(BaseModel):
    """The codes of a speech."""

    model_config = STRICT | ConfigDict(frozen=True)

    codes: TensorStream
    """See `SpokenCodes.codes`."""
    response_format: AudioFormat = "pcm"
    """See `TalkerRequest.response_format`."""


class VocoderOptions(BaseModel):
    """Options of the executor of a vocoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enforce_eager: bool = False
    """See `TalkerOptions.enforce_eager`."""
    gpus: int = Field(default=1, ge=0, le=1)
    """GPUs of a replica. With 0, the vocoder runs on the CPU."""


class VocoderTask(ModelSettings, UnitTask[VocoderRequest, TalkerResponse]):
    """Runs the vocoder of a Qwen2.5-Omni or a Qwen3-Omni, which decodes the codes of a talker while it speaks."""

    executor = "vocoder"

    options: VocoderOptions = VocoderOptions()
    """Options of the executor."""

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def continues(self, request: VocoderRequest) -> bool:
        return True


def decode_speech(vocoder: VocoderTask, request: TalkerRequest, spoken: TalkerResponse) -> TalkerResponse:
    """Returns the speech whose codes a talker without a vocoder has generated."""
    assert isinstance(spoken, SpokenCodes)
    return vocoder.invoke(VocoderRequest(codes=spoken.codes, response_format=request.response_format))

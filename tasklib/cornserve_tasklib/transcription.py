"""Speech recognition: models that convert audio to text."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from annotated_types import Ge, Gt, Le, MaxLen
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cornserve.task import Output, Stream, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_response import FinishReason, Usage
from cornserve_tasklib.engine import EngineOptions, EngineSettings
from cornserve_tasklib.language_codes import LANGUAGE_CODES
from cornserve_tasklib.media import Audio
from cornserve_tasklib.sampling_fields import STRICT

_CODE_OR_NAME = re.compile(r"[a-z]{2,20}( [a-z]{2,20})?")


def _language_code(given: str) -> str:
    """Returns the code of a language: "de" for "de-DE", "DE", " de " and "German"."""
    language = re.split("[-_]", given.strip(), maxsplit=1)[0].lower()
    if not _CODE_OR_NAME.fullmatch(language):
        raise ValueError("must be the code of a language, such as 'en' or 'en-GB', or its name, such as 'english'")
    return LANGUAGE_CODES.get(language, language)


Language = Annotated[str, AfterValidator(_language_code)]
"""An ISO 639 code: "en", "de", …; a tag that begins with one, whose region is ignored; or a name: "english"."""


class TranscriptionOptions(BaseModel):
    """The optional fields of a `TranscriptionRequest`, with the names of OpenAI's API and of vLLM."""

    model_config = STRICT | ConfigDict(frozen=True)

    language: Language | None = None
    """The language of the speech. By default, Whisper detects it in the first 30 seconds. Other models need none."""
    to_language: Language = "en"
    """The language of a translation. Whisper only translates to English."""
    hotwords: Annotated[str, MaxLen(10_000)] | None = None
    """Words to recognize, for the models that have this input in vLLM, such as FunASR. Others do not use it."""
    prompt: Annotated[str, MaxLen(10_000)] = ""
    """A text that precedes the transcript, for its style and spelling."""
    temperature: Annotated[float, Ge(0), Le(1)] = 0.0
    """The randomness of sampling. 0 selects greedy decoding."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """See `SamplingFields.top_p`."""
    top_k: Annotated[int, Ge(0), Le(1_000_000)] = 0
    """See `SamplingFields.top_k`."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """See `SamplingFields.min_p`."""
    presence_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    """See `SamplingFields.presence_penalty`."""
    frequency_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    """See `SamplingFields.frequency_penalty`."""
    repetition_penalty: Annotated[float, Gt(0), Le(2)] = 1.0
    """See `SamplingFields.repetition_penalty`."""
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
    """Makes sampling reproducible."""
    max_completion_tokens: Annotated[int, Ge(1)] | None = None
    """The maximum number of generated tokens for each clip of at most 30 seconds."""


class TranscriptionRequest(TranscriptionOptions):
    """Speech to transcribe."""

    audio: Audio
    """The speech. The executor divides long audio into clips at quiet positions."""
    task: Literal["transcribe", "translate"] = "transcribe"
    """Whether the transcript is in the language of the speech, or in `to_language`."""
    segments: bool = False
    """Whether the transcript has timestamps. Its text then does not arrive before the end of each clip."""
    words: bool = False
    """Whether the transcript also has the times of words, for Whisper. Requires `segments`."""

    @model_validator(mode="after")
    def _check_words(self) -> Self:
        if self.words and not self.segments:
            raise ValueError("words: requires segments: set both")
        return self


class TranscriptionSegment(BaseModel):
    """A part of a transcript between two timestamps of the model."""

    id: int
    """The position among the segments of its clip."""
    seek: int
    """The start of the clip, in whole seconds."""
    start: float
    """The start of the segment, in seconds."""
    end: float
    """The end of the segment, in seconds."""
    text: str
    """The text of the segment."""
    tokens: list[int]
    """The tokens of the text."""
    temperature: float
    """The temperature of the request."""
    avg_logprob: float
    """The mean of the tokens' log probabilities."""
    compression_ratio: float
    """The length of the text, divided by its compressed length. A high ratio indicates repetitions."""


class TranscriptionWord(BaseModel):
    """A word of a transcript, with the punctuation next to it."""

    word: str
    """The word, without spaces. A character, in languages that are written without spaces."""
    start: float
    """The start of the word, in seconds."""
    end: float
    """The end of the word, in seconds."""


class TranscriptionChunk(BaseModel):
    """The next part of a streamed transcript."""

    text: str
    """The text since the previous chunk."""
    finish_reason: FinishReason | None = None
    """The reason why a clip ended, in its last chunk."""


class TranscriptionResponse(Output):
    """A transcript, as a stream of chunks and as a whole."""

    chunks: Stream[TranscriptionChunk] = Stream()
    """The chunks of all clips, in order."""
    text: str = ""
    """The complete text."""
    language: str = ""
    """The language of the speech, from the request or detected. Empty if neither."""
    seconds: float = 0
    """The duration of the audio."""
    segments: list[TranscriptionSegment] = Field(default_factory=list)
    """The segments of all clips, if the request asks for them."""
    words: list[TranscriptionWord] = Field(default_factory=list)
    """The words of all segments, if the request asks for them."""
    usage: Usage = Usage()
    """Token counts, including those of the audio."""


class TranscriptionTask(EngineSettings, UnitTask[TranscriptionRequest, TranscriptionResponse]):
    """Runs a speech recognition model, such as Whisper, on vLLM."""

    executor = "transcription"

    def size(self, request: TranscriptionRequest) -> InputSize:
        return request.audio.size

    def continues(self, request: TranscriptionRequest) -> bool:
        """Returns whether another executor makes the same transcript again."""
        return request.temperature == 0 or request.seed is not None

    def post_init(self) -> None:
        if self.options.lora_modules:
            raise ValueError("lora_modules: a speech recognition model has no LoRA adapters: remove the option")


class Transcribe(Task[TranscriptionRequest, TranscriptionResponse]):
    """Transcribes and translates speech with one model."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `TranscriptionTask.revision`."""
    options: EngineOptions = EngineOptions()
    """Options of the engine."""

    def post_init(self) -> None:
        self.transcription = TranscriptionTask(model_id=self.model_id, revision=self.revision, options=self.options)

    def invoke(self, request: TranscriptionRequest) -> TranscriptionResponse:
        return self.transcription.invoke(request)

"""Text to speech: models that speak a text."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Field

from cornserve.task import Output, Stream, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.sampling_fields import CHARACTERS_PER_TOKEN, STRICT

MAX_CHARACTERS = 4096
"""The maximum length of a text, as in OpenAI's API."""

DEFAULT_VOICE = "default"
"""The name of the first voice of every model."""


class SpeechRequest(BaseModel):
    """A text to speak, with the names of OpenAI's API."""

    model_config = STRICT | ConfigDict(frozen=True)

    input: Annotated[str, MinLen(1), MaxLen(MAX_CHARACTERS)]
    """The text."""
    voice: Annotated[str, MinLen(1), MaxLen(256)] = DEFAULT_VOICE
    """The speaker. The model determines the names."""
    response_format: AudioFormat = "mp3"
    """The format of the audio file."""
    speed: Annotated[float, Ge(0.25), Le(4)] = 1.0
    """The speed of the speech: 2 is twice as fast as usual."""
    seed: Annotated[int, Ge(0), Le(2**63 - 1 - MAX_CHARACTERS)] | None = None
    """The seed of the first sentence; the following sentences have the following seeds. Random by default."""


class SpeechChunk(BaseModel):
    """The next part of an audio file."""

    audio: str
    """The content of the part in base64."""
    seconds: float
    """The duration of the speech that has been generated for this part."""
    sample_rate: int
    """The sample rate of the model in Hz, which is that of WAV and PCM."""


class SpeechResponse(Output):
    """The speech of a text."""

    audio: Stream[SpeechChunk] = Stream()
    """The audio file in parts, one for each sentence. It is only available as a stream."""
    seconds: float = 0
    """The duration of the speech."""
    usage: Usage = Usage()
    """The tokens of the text, and the frames of the speech."""


class TextToSpeechOptions(BaseModel):
    """Options of the executor of a text-to-speech model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_characters: int = Field(default=MAX_CHARACTERS, ge=1, le=MAX_CHARACTERS)
    """The maximum number of characters of a text."""
    gpus: int = Field(default=1, ge=0, le=1)
    """GPUs of a replica. With 0, the model runs on the CPU."""


class TextToSpeechTask(ModelSettings, UnitTask[SpeechRequest, SpeechResponse]):
    """Runs a VITS model of transformers, such as the models of MMS-TTS. The sentences of requests take turns."""

    executor = "text_to_speech"

    options: TextToSpeechOptions = TextToSpeechOptions()
    """Options of the executor."""

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def size(self, request: SpeechRequest) -> InputSize:
        return InputSize(text=len(request.input) // CHARACTERS_PER_TOKEN)

    def continues(self, request: SpeechRequest) -> bool:
        return True


class Speak(Task[SpeechRequest, SpeechResponse]):
    """Speaks a text with one model."""

    model_id: str
    """See `TextToSpeechTask.model_id`."""
    revision: str | None = None
    """See `TextToSpeechTask.revision`."""
    options: TextToSpeechOptions = TextToSpeechOptions()
    """See `TextToSpeechTask.options`."""

    def post_init(self) -> None:
        self.speech = TextToSpeechTask(model_id=self.model_id, revision=self.revision, options=self.options)

    def invoke(self, request: SpeechRequest) -> SpeechResponse:
        return self.speech.invoke(request)

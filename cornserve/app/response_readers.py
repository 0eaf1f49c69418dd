"""Functions that read an app's response: they run as part of the task, and so wait for the values that they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json

from cornserve.task import Stream
from cornserve.task.errors import YieldTypeError
from cornserve_tasklib.chat_response import (
    ChatChoice,
    ChatChunk,
    ChatResponse,
    FinishReason,
    PromptLogprobs,
    ToolCallDelta,
    Usage,
)
from cornserve_tasklib.classification import ClassificationResponse
from cornserve_tasklib.embedding import EmbeddingResponse
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.image_generation import ImageGenerationResponse, ImageProgress
from cornserve_tasklib.scoring import ScoringResponse
from cornserve_tasklib.speaking_chat import SpokenChatResponse
from cornserve_tasklib.text_to_speech import SpeechChunk, SpeechResponse
from cornserve_tasklib.transcription import (
    TranscriptionChunk,
    TranscriptionResponse,
    TranscriptionSegment,
    TranscriptionWord,
)

Result = TypeVar("Result")

YIELDS = "yields"
"""The name of the stream of all that a task yields."""


@dataclass(frozen=True, slots=True)
class YieldReader(Generic[Result]):
    """Reads what a task yields before its response.

    Args:
        read: returns the stream, or the items, for a value that the task has yielded. Raises `YieldTypeError`.
        join: returns the result for the stream of all items.
    """

    read: Callable[[Any], Stream[Any] | Sequence[Any]]
    join: Callable[[Stream[Any]], Result]


@dataclass(frozen=True, slots=True, eq=False)
class ResponseReader(Generic[Result]):
    """Reads a response. The result is a value, a stream, or several streams by name.

    Args:
        read: returns the result for a response and the adapter of its type.
        dump: returns a result that is a value as JSON.
        load: returns the value for the JSON of `dump`.
        load_item: returns an item of a stream from its JSON.
        yields: reads what the task yields, which then is the result. None if the result is the response.
    """

    name: str
    read: Callable[[Any, TypeAdapter[Any]], Result]
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    load_item: Callable[[bytes], Any]
    yields: YieldReader[Result] | None = None


class RawJson(bytes):
    """A value as JSON."""


def encode_item(item: Any) -> bytes:
    """Returns an item of a stream as JSON. A number that JSON does not have, such as NaN, is null."""
    return to_json(item, inf_nan_mode="null")


class WholeChat(NamedTuple):
    """A complete response of a language model. All values of the choices are available."""

    choices: list[ChatChoice]
    usage: Usage
    images: list[GeneratedImage]
    prompt_logprobs: PromptLogprobs | None


class ReadPrompt(NamedTuple):
    """The prompt of a language model."""

    token_ids: list[int]
    text: str


class Ending(NamedTuple):
    """The values that follow the last chunk."""

    finish_reasons: list[FinishReason]
    stop_sequences: list[str | None]
    usage: Usage
    images: list[GeneratedImage]


class Vectors(NamedTuple):
    """The embeddings of all inputs, as base64, and the number of tokens."""

    embeddings: list[str]
    prompt_tokens: int


class Scores(NamedTuple):
    """The scores of all pairs, and the number of tokens."""

    scores: list[float]
    prompt_tokens: int


class Classes(NamedTuple):
    """The values of the classes of all inputs, their most likely classes, and the number of tokens."""

    probs: list[list[float]]
    labels: list[str | None]
    prompt_tokens: int


class WholeTranscript(NamedTuple):
    """A complete transcript. All values are available."""

    text: str
    language: str
    seconds: float
    segments: list[TranscriptionSegment]
    words: list[TranscriptionWord]
    usage: Usage


class Images(NamedTuple):
    """The images of a request, and their size if the response states it."""

    images: list[GeneratedImage]
    size: str
    usage: Usage


class SpeechEnding(NamedTuple):
    """The values that follow the last chunk of speech."""

    seconds: float
    usage: Usage


class WholeSpeech(NamedTuple):
    """The audio file in base64, and whether it contains the complete speech."""

    audio: str
    is_complete: bool


def _read_whole_chat(response: ChatResponse, _: object = None) -> WholeChat:
    choices = response.choices
    for choice in choices:
        vars(choice)  # waits for all values of a pending output
    return WholeChat(choices, response.usage, response.images, response.prompt_logprobs)


def _read_mapped_chunks_or_chat(response: ChatResponse, _: object) -> Stream[ChatChunk] | WholeChat:
    chunks: Stream[ChatChunk] = response.chunks
    return chunks if chunks.is_mapped and not response.text else _read_whole_chat(response)


def _read_chunks(response: ChatResponse, _: object) -> Stream[ChatChunk] | list[ChatChunk]:
    chunks: Stream[ChatChunk] = response.chunks
    return chunks if chunks.is_open else [as_chunk(index, choice) for index, choice in enumerate(response.choices)]


def _read_yielded_chunks(value: object) -> Stream[ChatChunk] | Sequence[ChatChunk]:
    match value:
        case str():
            return [ChatChunk(text=value)]
        case ChatChunk():
            return [value]
        case ChatResponse():
            return _read_chunks(value, None)
        case Stream():
            return value
        case _:
            raise YieldTypeError(value, "a str, a ChatChunk, a ChatResponse or the stream `chunks` of one")


def _read_yielded(value: Any) -> Stream[Any] | Sequence[Any]:
    return value if isinstance(value, Stream) else [value]


def _read_prompt(response: ChatResponse, _: object) -> ReadPrompt | None:
    tokens = response.prompt_token_ids
    return None if tokens is None else ReadPrompt(tokens, response.text)


def _read_ending(response: ChatResponse, _: object) -> Ending:
    choices = response.choices
    reasons = [choice.finish_reason for choice in choices]
    stops = [choice.stop_sequence for choice in choices]
    return Ending(reasons, stops, response.usage, response.images)


def _read_spoken_streams(response: SpokenChatResponse, _: object) -> dict[str, Stream[Any]]:
    streams: dict[str, Stream[Any]] = {"text": response.message.chunks, "audio": response.audio}
    return {name: stream for name, stream in streams.items() if stream.is_open}


def _read_whole_speech(response: SpokenChatResponse, _: object) -> WholeSpeech | None:
    speech = response.speech
    return None if speech is None else WholeSpeech(speech.audio, speech.finish_reason == "stop")


def _read_vectors(response: EmbeddingResponse, _: object) -> Vectors:
    return Vectors(response.embeddings, response.prompt_tokens)


def _read_scores(response: ScoringResponse, _: object) -> Scores:
    return Scores(response.scores, response.prompt_tokens)


def _read_classes(response: ClassificationResponse, _: object) -> Classes:
    return Classes(response.probs, response.labels, response.prompt_tokens)


def _read_images(response: ImageGenerationResponse, _: object) -> Images:
    return Images(response.images, response.size, response.usage)


def _read_image_progress(response: ImageGenerationResponse, _: object) -> Stream[ImageProgress] | list[ImageProgress]:
    progress: Stream[ImageProgress] = response.progress
    return progress if progress.is_open else []


def _read_speech(response: SpeechResponse, _: object) -> Stream[SpeechChunk] | list[SpeechChunk]:
    audio: Stream[SpeechChunk] = response.audio
    return audio if audio.is_open else []


def _read_speech_ending(response: SpeechResponse, _: object) -> SpeechEnding:
    return SpeechEnding(response.seconds, response.usage)


def _read_transcript(response: TranscriptionResponse, _: object) -> WholeTranscript:
    return WholeTranscript(
        response.text, response.language, response.seconds, response.segments, response.words, response.usage
    )


def _read_mapped_chunks_or_transcript(
    response: TranscriptionResponse, _: object
) -> Stream[TranscriptionChunk] | WholeTranscript:
    chunks: Stream[TranscriptionChunk] = response.chunks
    return chunks if chunks.is_mapped and not response.text else _read_transcript(response, _)


def _read_transcript_chunks(
    response: TranscriptionResponse, _: object
) -> Stream[TranscriptionChunk] | list[TranscriptionChunk]:
    chunks: Stream[TranscriptionChunk] = response.chunks
    return chunks if chunks.is_open else [TranscriptionChunk(text=response.text, finish_reason="stop")]


def _read_json(response: Any, response_type: TypeAdapter[Any]) -> bytes:
    # Not dump_json: it would hide the errors of invocations whose values it reads.
    return to_json(response_type.dump_python(response, mode="json"))


def _read_streams(response: Any, _: object) -> dict[str, Stream[Any]]:
    if not isinstance(response, BaseModel):
        return {}
    fields = {name for name, field in type(response).model_fields.items() if _is_stream(field.annotation)}
    return {name: stream for name in sorted(fields) if (stream := getattr(response, name)).is_open}


def as_chunk(index: int, choice: ChatChoice) -> ChatChunk:
    """Returns one chunk with the content of a choice."""
    calls = [
        ToolCallDelta(index=number, id=call.id, name=call.function.name, arguments=call.function.arguments)
        for number, call in enumerate(choice.tool_calls or ())
    ]
    return ChatChunk(
        text=choice.text,
        token_ids=choice.token_ids,
        index=index,
        reasoning=choice.reasoning,
        tool_calls=calls or None,
        logprobs=choice.logprobs,
    )


def _is_stream(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", annotation) is Stream


def _reader(
    name: str,
    read: Callable[[Any, TypeAdapter[Any]], Result],
    result_type: Any,
    item_type: type[BaseModel] = ChatChunk,
    yields: YieldReader[Result] | None = None,
) -> ResponseReader[Result]:
    adapter: TypeAdapter[Any] = TypeAdapter(result_type)
    return ResponseReader(name, read, adapter.dump_json, adapter.validate_json, item_type.model_validate_json, yields)


def _of_chat(read: Callable[[ChatResponse, TypeAdapter[Any]], Result]) -> Callable[[Any, TypeAdapter[Any]], Result]:
    """Returns a function that reads chats, whether they are spoken or not."""

    def read_chat(response: ChatResponse | SpokenChatResponse, adapter: TypeAdapter[Any]) -> Result:
        return read(response.message if isinstance(response, SpokenChatResponse) else response, adapter)

    return read_chat


WHOLE_CHAT = _reader("whole chat", _of_chat(_read_whole_chat), WholeChat)

MAPPED_CHUNKS_OR_CHAT = _reader("mapped chunks or chat", _of_chat(_read_mapped_chunks_or_chat), WholeChat)
"""The chunks if the task has mapped them and set no text, otherwise the complete response."""

_YIELDED_CHUNKS: YieldReader[Stream[ChatChunk] | list[ChatChunk]] = YieldReader(
    _read_yielded_chunks, lambda items: items
)

CHUNKS = _reader(
    "chunks",
    _of_chat(_read_chunks),
    list[ChatChunk],
    yields=_YIELDED_CHUNKS,
)
"""The chunks that the task yields, or those of its response, or one chunk for each choice of a response that the task
has created itself."""

PROMPT = _reader("prompt", _of_chat(_read_prompt), ReadPrompt | None)
"""The prompt of a request with `prompt_only`, or None for a response that the task has created itself."""

ENDING = _reader("ending", _of_chat(_read_ending), Ending)
SPOKEN_STREAMS: ResponseReader[dict[str, Stream[Any]]] = ResponseReader(
    "spoken streams", _read_spoken_streams, to_json, from_json, RawJson
)
"""The open streams of a spoken chat: `text` has `ChatChunk`s and `audio` has `SpokenChunk`s. Items from another process
are `RawJson`."""

WHOLE_SPEECH = _reader("whole speech", _read_whole_speech, WholeSpeech | None)
VECTORS = _reader("vectors", _read_vectors, Vectors)
SCORES = _reader("scores", _read_scores, Scores)
CLASSES = _reader("classes", _read_classes, Classes)
IMAGES = _reader("images", _read_images, Images)

IMAGE_PROGRESS = _reader("image progress", _read_image_progress, list[ImageProgress], ImageProgress)
"""The steps of the images, or an empty list for a response that the task has created itself."""

SPEECH = _reader("speech", _read_speech, list[SpeechChunk], SpeechChunk)
"""The audio, or an empty list for a response without its stream."""

SPEECH_ENDING = _reader("speech ending", _read_speech_ending, SpeechEnding)
TRANSCRIPT = _reader("transcript", _read_transcript, WholeTranscript)

MAPPED_CHUNKS_OR_TRANSCRIPT = _reader(
    "mapped chunks or transcript", _read_mapped_chunks_or_transcript, WholeTranscript, TranscriptionChunk
)
"""The chunks if the task has mapped them and set no text, otherwise the complete response."""

TRANSCRIPT_CHUNKS = _reader("transcript chunks", _read_transcript_chunks, list[TranscriptionChunk], TranscriptionChunk)
"""The chunks, or one chunk with the text of a response that the task has created itself."""

JSON: ResponseReader[bytes] = ResponseReader("json", _read_json, bytes, bytes, from_json)
"""The response as JSON, in which streams are null."""

STREAMS: ResponseReader[dict[str, Stream[Any]]] = ResponseReader(
    "streams",
    _read_streams,
    to_json,
    from_json,
    RawJson,
    YieldReader(_read_yielded, lambda items: {YIELDS: items}),
)
"""The open streams of the response by field, or the stream `yields` of a task that yields. Items from another process
are `RawJson`."""

READERS: dict[str, ResponseReader[Any]] = {
    reader.name: reader
    for reader in (
        *(WHOLE_CHAT, MAPPED_CHUNKS_OR_CHAT, CHUNKS, PROMPT, ENDING, SPOKEN_STREAMS, WHOLE_SPEECH),
        *(VECTORS, SCORES, CLASSES, IMAGES, IMAGE_PROGRESS),
        *(SPEECH, SPEECH_ENDING),
        *(TRANSCRIPT, MAPPED_CHUNKS_OR_TRANSCRIPT, TRANSCRIPT_CHUNKS, JSON, STREAMS),
    )
}

"""The example apps for images and speech, with outputs of models that the tests give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cornserve import UnitTask
from cornserve.task import Blob
from cornserve.testing import run_task, stream_items
from cornserve_tasklib import (
    Audio,
    ChatMessage,
    ChatRequest,
    GeneratedImage,
    Image,
    ImageEditRequest,
    ImageGenerationRequest,
    SpeechRequest,
    SpokenChatRequest,
    TalkerRequest,
    TranscriptionRequest,
)
from cornserve_tasklib.media import Media, MediaPart
from cornserve_tasklib.messages import TextPart
from examples.answer_speech import AnswerSpeech
from examples.compare_pictures import Compare
from examples.edit_picture import Edit
from examples.illustrate import Illustrate
from examples.narrate import Narrate
from examples.voice_assistant import STYLE, Assistant

DRAWN = GeneratedImage(b64_json="aWU=", seed=7)
RECORDING = Audio(
    data=Blob(b"wav"),
    format="WAV",
    digest="c",
    where="messages[0].content[0]",
    sample_rate=16000,
    channels=1,
    seconds=2,
)


def picture(digest: str) -> Image:
    return Image(data=Blob(b"png"), format="PNG", digest=digest, where=digest, width=64, height=48)


def chat(question: str, *media: Media, **fields: Any) -> ChatRequest:
    parts = [MediaPart(type="media", media=medium) for medium in media]
    text = TextPart(type="text", text=question)
    return ChatRequest(messages=[ChatMessage(role="user", content=[*parts, text])], **fields)


def test_two_pictures_are_described_concurrently_and_then_compared() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if task.name == "EncoderTask":
            return {}
        system = request.messages[0]
        if system.role == "system":
            assert system.content.endswith("\nPicture 1: a field\nPicture 2: a field in snow")
            return {"text": "It has snowed."}
        [image] = request.images
        return {"text": {"a": "a field", "b": "a field in snow"}[image.digest]}

    run = run_task(Compare(model_id="vl"), chat("What has changed?", picture("a"), picture("b"), seed=7), answer)

    *described, compared = run.calls_of("LLMTask")
    assert run.response.text == "It has snowed."
    assert [call.round for call in described] == [1, 1]
    assert compared.request.seed == 7
    assert [image.digest for image in compared.request.images] == ["a", "b"]


def test_a_single_picture_is_not_described_first() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        return {} if task.name == "EncoderTask" else {"text": "A field."}

    run = run_task(Compare(model_id="vl"), chat("What is this?", picture("a")), answer)

    assert run.response.text == "A field."
    assert len(run.calls_of("LLMTask")) == 1


def test_an_answer_has_a_text_and_an_illustration() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if isinstance(request, ImageGenerationRequest):
            return {"images": [DRAWN]}
        if request.messages[0].role == "system":
            return {"text": "Corn is tall.", "chunks": [{"text": "Corn is "}, {"text": "tall."}]}
        assert request.messages[0].content.endswith("Corn is tall.")
        return {"text": "Green stalks at noon."}

    request = ChatRequest.ask("What is corn?", max_tokens=30)
    run = run_task(Illustrate(writer_id="llm", painter_id="image", size="64x64"), request, answer)

    [image] = run.calls_of("ImageGenerator")
    assert (run.response.text, run.response.images) == ("Corn is tall.", [DRAWN])
    assert "".join(chunk.text for chunk in stream_items(run.yielded[0].chunks)) == "Corn is tall."
    assert (image.request.prompt, image.request.size) == ("An illustration. Green stalks at noon.", "64x64")
    assert run.calls[0].request.max_tokens == 30


def test_a_picture_is_edited_by_an_instruction_that_fits_it() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if isinstance(request, ImageEditRequest):
            return {"images": [DRAWN]}
        [image] = request.images
        assert image.digest == "a"
        assert "make it autumn" in request.messages[0].content[1].text
        return {"text": "The leaves of the oak turn red."}

    request = ImageEditRequest(prompt="make it autumn", image=picture("a"), seed=7)
    run = run_task(Edit(reader_id="vl", editor_id="edit"), request, answer)

    [edit] = run.calls_of("ImageEditor")
    assert run.response.images == [DRAWN]
    assert (edit.request.prompt, edit.request.seed) == ("make it autumn. The leaves of the oak turn red.", 7)
    assert edit.request.image.digest == "a"


def test_a_spoken_question_is_answered_with_the_instruction_of_the_text() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if isinstance(request, TranscriptionRequest):
            assert request.audio.digest == "c"
            return {"text": "Is corn a grass?"}
        return {"text": "Yes."}

    run = run_task(
        AnswerSpeech(listener_id="asr", writer_id="llm"), chat("Use one word.", RECORDING, temperature=0), answer
    )

    [call] = run.calls_of("LLMTask")
    assert run.response.text == "Yes."
    assert [message.content for message in call.request.messages] == ["Is corn a grass?\nUse one word."]
    assert call.request.temperature == 0


def test_an_answer_is_spoken_with_the_options_of_the_request() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if isinstance(request, SpeechRequest):
            return {"audio": [{"audio": "aWU=", "seconds": 1.5, "sample_rate": 16000}]}
        return {"text": "Air scatters blue light."}

    request = SpeechRequest(input="Why is the sky blue?", speed=1.5, response_format="wav")
    run = run_task(Narrate(writer_id="llm", speaker_id="tts"), request, answer)

    [speech] = run.calls_of("TextToSpeechTask")
    assert speech.request == SpeechRequest(input="Air scatters blue light.", speed=1.5, response_format="wav")
    assert [chunk.audio for chunk in stream_items(run.response.audio)] == ["aWU="]


def test_the_assistant_answers_with_a_text_and_its_speech() -> None:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if isinstance(request, TalkerRequest):
            return {"audio": "aWU=", "chunks": [{"pcm": "aWU="}], "text": "A grass."}
        return {"text": "A grass."}

    request = SpokenChatRequest(chat=chat("What is corn?"), voice="ethan")
    run = run_task(Assistant(model_id="omni"), request, answer)

    [thinker, talker] = run.calls
    assert thinker.request.messages[0] == STYLE
    assert (talker.request.voice, talker.request.user_messages) == ("ethan", ["What is corn?"])
    assert run.response.message.text == "A grass."
    assert [chunk.pcm for chunk in stream_items(run.response.audio)] == ["aWU="]

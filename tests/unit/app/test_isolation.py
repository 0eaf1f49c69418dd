"""Apps that run one executor of another app alone."""

from __future__ import annotations

import io

import PIL.Image
import pytest

from cornserve import App, Task
from cornserve.app.isolation import isolated_source, recorded_components
from cornserve.app.source import SourceError, load_app_source
from cornserve.app.spec import AppSource, AppSpec
from cornserve.task.dry_record import DryRecording
from cornserve.task.references import Blob, Origin
from cornserve.task.unit import unit_tasks
from cornserve_echo.notes import NoteRequest, NoteTask, ReadRequest, ReadTask
from cornserve_echo.stages import Caption, CaptionRequest, StageTask
from cornserve_echo.task import EchoRequest, EchoResponse
from cornserve_tasklib import (
    ChatRequest,
    EditImages,
    GenerateImages,
    Image,
    ImageEditRequest,
    ImageGenerationRequest,
    LLMTask,
    PrefillDecodeChat,
    PrefillSource,
    SpeakingChat,
    SpokenChatRequest,
    TokenSource,
)

CAPTION = """
from cornserve import App
from cornserve_echo.stages import Caption, StageTask

app = App("caption", [Caption(llm=StageTask(seconds={"llm": 0.2}), encoder=StageTask(seconds={"encoder": 0.1}))])
"""
LLM, ENCODER = StageTask(seconds={"llm": 0.2}), StageTask(seconds={"encoder": 0.1})
SOURCE = StageTask(seconds={"encoder": 0}, gpus=0)

NOTES = """
from cornserve import App
from tests.unit.app.test_isolation import ReadNote

app = App("notes", [ReadNote()])
"""


SPEAKER = """
from cornserve import App
from cornserve_tasklib import SpeakingChat

app = App("speaker", [SpeakingChat(model_id="m")])
"""
SPEAK = SpeakingChat(model_id="m")
SPLIT_SPEAKER = SPEAKER.replace('"m"', '"m", split_vocoder=True')

SPLIT_CHAT = SPEAKER.replace("SpeakingChat", "PrefillDecodeChat")

IMAGES = """
from cornserve import App
from cornserve_tasklib import GenerateImages

app = App("images", [GenerateImages(model_id="m", split=True)])
"""
GENERATE = GenerateImages(model_id="m", split=True)

EDITS = """
from cornserve import App
from cornserve_tasklib import EditImages

app = App("edits", [EditImages(model_id="m", split=True)])
"""
EDIT = EditImages(model_id="m", split=True)


class ReadNote(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.write, self.read = NoteTask(), ReadTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        note = self.write.invoke(NoteRequest(text=request.text))
        return self.read.invoke(ReadRequest(notes=[note.note]))


def isolated(source: str, executor: str) -> App:
    speakers = dict.fromkeys((SPEAKER, SPLIT_SPEAKER, SPLIT_CHAT), "speaker")
    app = {**speakers, CAPTION: "caption", NOTES: "notes", IMAGES: "images", EDITS: "edits"}
    return load_app_source(
        isolated_source("alone", app[source], AppSpec(source=AppSource(inline=source)), 0, executor), "isolated_test"
    )


def recorded(app: App, request: object) -> list[tuple[str, tuple[object, ...]]]:
    recording = DryRecording()
    recording.record(app.paths[0], request)
    return [(invocation.executor_key, invocation.inputs) for invocation in recording.invocations]


def test_a_source_replaces_the_executor_that_produces_the_inputs() -> None:
    app = isolated(CAPTION, LLM.key)
    assert app.name == "alone"
    assert recorded(app, CaptionRequest(images=2)) == [
        (SOURCE.key, ()),
        (SOURCE.key, ()),
        (LLM.key, (Origin(0, "result"), Origin(1, "result"))),
    ]


def test_a_talker_reads_the_tokens_of_a_source() -> None:
    request = SpokenChatRequest(chat=ChatRequest.ask("Hi!"))

    thinker = SPEAK.thinker.llm
    assert isinstance(thinker, LLMTask)
    assert recorded(isolated(SPEAKER, thinker.key), request) == [(thinker.key, ())]
    assert recorded(isolated(SPEAKER, SPEAK.talker.key), request) == [
        (TokenSource(model_id="m").key, ()),
        (SPEAK.talker.key, (Origin(0, "tokens"),)),
    ]


def test_a_vocoder_reads_the_codes_of_a_talker_that_needs_no_gpu() -> None:
    request = SpokenChatRequest(chat=ChatRequest.ask("Hi!"))
    chat = SpeakingChat(model_id="m", split_vocoder=True)
    constant = chat.talker.input_source()

    assert recorded(isolated(SPLIT_SPEAKER, chat.vocoder.key), request) == [
        (TokenSource(model_id="m").key, ()),
        (constant.key, (Origin(0, "tokens"),)),
        (chat.vocoder.key, (Origin(1, "codes"),)),
    ]
    assert constant.spec.gpus == 0


def test_a_decode_executor_reads_keys_and_values_of_a_source_that_needs_no_model() -> None:
    chat = PrefillDecodeChat(model_id="m")
    assert chat.prefill is not None

    assert recorded(isolated(SPLIT_CHAT, chat.decode.key), ChatRequest.ask("Hi!")) == [
        (PrefillSource().key, ()),
        (chat.decode.key, (Origin(0, "kv"), Origin(0, "first"))),
    ]
    assert recorded(isolated(SPLIT_CHAT, chat.prefill.key), ChatRequest.ask("Hi!")) == [(chat.prefill.key, ())]


def test_the_components_of_an_image_model_read_tensors_of_sources_that_need_no_gpu() -> None:
    request = ImageGenerationRequest(prompt="corn")

    for unit, inputs in ((GENERATE.denoiser, "embeddings"), (GENERATE.decoder, "latents")):
        app = isolated(IMAGES, unit.key)
        *sources, (measured, origins) = recorded(app, request)
        keys = {key for key, _ in sources}
        assert (measured, origins) == (unit.key, (Origin(len(sources) - 1, inputs),))
        assert keys.isdisjoint({GENERATE.prompt_encoder.key, GENERATE.denoiser.key})
        assert {task.spec.gpus for task in unit_tasks(app.paths[0]) if task.key in keys} == {0}


def test_the_components_of_an_editing_model_read_a_file_and_tensors_of_sources() -> None:
    image = Image(format="PNG", width=48, height=32, digest="", where="image")
    request = ImageEditRequest(prompt="corn", image=image)
    constant = EDIT.prompt_encoder.input_source(), EDIT.source_encoder.input_source(), EDIT.denoiser.input_source()
    prompts, latents, denoiser = (unit.key for unit in constant)
    encoded, decoded = (Origin(0, "embeddings"), Origin(1, "latents")), (Origin(2, "latents"),)

    for unit, expected in (
        (EDIT.prompt_encoder, []),
        (EDIT.source_encoder, []),
        (EDIT.denoiser, [prompts, latents]),
        (EDIT.decoder, [prompts, latents, denoiser]),
    ):
        *sources, (measured, inputs) = recorded(isolated(EDITS, unit.key), request)
        assert ([key for key, _ in sources], measured) == (expected, unit.key)
        files = [found for _, given in (*sources, (measured, inputs)) for found in given if isinstance(found, Blob)]
        assert {PIL.Image.open(io.BytesIO(file.data)).size for file in files} == {(48, 32)}
        if not any(isinstance(found, Blob) for found in inputs):
            assert inputs == (encoded if len(inputs) == 2 else decoded)


def test_executors_that_consume_the_outputs_do_not_run() -> None:
    assert recorded(isolated(CAPTION, ENCODER.key), CaptionRequest(images=2)) == [(ENCODER.key, ())] * 2


def test_a_task_without_an_input_source_is_named() -> None:
    app = isolated(NOTES, ReadTask().key)
    recording = DryRecording()
    with pytest.raises(Exception, match="NoteTask has no input source, so its consumers cannot be measured alone"):
        recording.record(app.paths[0], EchoRequest(text="a"))


def test_an_unknown_executor_is_named() -> None:
    with pytest.raises(SourceError, match="Caption has no executor echo-1: give one of stage-"):
        isolated(CAPTION, "echo-1")


def test_the_components_that_an_executor_runs_are_recorded() -> None:
    path = Caption(llm=LLM, encoder=ENCODER)
    assert recorded_components(path, LLM.key, CaptionRequest(images=1)) == {"llm"}
    assert recorded_components(path, ENCODER.key, CaptionRequest(images=1)) == {"encoder"}
    assert recorded_components(path, ENCODER.key, CaptionRequest()) == set()

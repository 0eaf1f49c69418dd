from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cornserve.app.app import App
from cornserve.app.source import load_app_source, unload_app
from cornserve.app_host.description import AppDescription
from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve_tasklib import Chat, Classify, Embed, GenerateImages, Mllm, Score, Speak, Transcribe

MODULE = "app_of_the_description_test"

IMPORTS = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask
from cornserve_tasklib import Chat, ChatRequest, ChatResponse, LLMTask
"""

ECHO = """
class Echo(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name="echo", paths=[Echo()])
"""


@pytest.fixture(autouse=True)
def unload() -> Iterator[None]:
    yield
    unload_app(MODULE)


def described(app: App) -> AppDescription:
    """Returns the description as another process receives it."""
    return AppDescription.model_validate_json(AppDescription.of_app(app).model_dump_json())


def test_an_app_with_its_own_tasks_has_no_library_paths() -> None:
    description = described(load_app_source(IMPORTS + ECHO, MODULE))

    assert (description.name, description.paths, description.shares) == ("echo", ["Echo"], [1.0])
    assert [spec.executor for spec in description.executor_specs.values()] == ["echo"]
    assert (description.operations, description.finds_media) == (frozenset(), False)
    assert description.library_paths is None
    with pytest.raises(DefinitionError, match="the app 'echo' has tasks that cornserve_tasklib does not define"):
        description.build_library_app()


def test_an_app_of_library_tasks_can_be_built_from_its_description() -> None:
    paths: list[Task[Any, Any]] = [Mllm(model_id="/m"), Mllm(model_id="/m", split_encoder=True, with_enc=False)]
    app = App(name="vision", paths=paths, shares=[3, 1], max_invocations=9)

    description = described(app)
    built = description.build_library_app()

    assert (built.name, built.paths, built.shares, built.max_invocations) == ("vision", tuple(paths), (3.0, 1.0), 9)
    assert built.executor_specs() == app.executor_specs() == description.executor_specs
    assert (description.operations, description.finds_media) == (frozenset({"chat", "completion"}), True)


def test_an_embedding_app_supports_embeddings_only() -> None:
    description = described(App(name="embed", paths=[Embed(model_id="/m")]))

    assert (description.operations, description.finds_media) == (frozenset({"embedding"}), True)


def test_a_cross_encoder_supports_scores_only() -> None:
    description = described(App(name="ranker", paths=[Score(model_id="/m")]))

    assert (description.operations, description.finds_media) == (frozenset({"scoring"}), False)


def test_a_classifier_supports_classes_only() -> None:
    description = described(App(name="clerk", paths=[Classify(model_id="/m")]))

    assert (description.operations, description.finds_media) == (frozenset({"classification"}), False)


def test_a_speech_app_supports_transcriptions_only() -> None:
    description = described(App(name="whisper", paths=[Transcribe(model_id="/m")]))

    assert (description.operations, description.finds_media) == (frozenset({"transcription"}), False)


def test_an_image_app_supports_image_generation_only() -> None:
    description = described(App(name="image", paths=[GenerateImages(model_id="/m")]))

    assert (description.operations, description.finds_media) == (frozenset({"image generation"}), False)


def test_a_text_to_speech_app_supports_speech_only() -> None:
    description = described(App(name="speech", paths=[Speak(model_id="/m")]))

    assert (description.operations, description.finds_media) == (frozenset({"speech"}), False)


@pytest.mark.parametrize(
    "definition",
    [
        "class Own(Chat): pass",
        "class Own(Chat): pass\nOwn.__module__, Own.__name__ = Chat.__module__, 'Chat'",
        "class Own(LLMTask): pass",
    ],
)
def test_a_subclass_of_a_library_task_is_not_a_library_task(definition: str) -> None:
    source = f"{IMPORTS}{definition}\napp = App(name='own', paths=[Own(model_id='/m')])"

    assert described(load_app_source(source, MODULE)).library_paths is None


def test_paths_must_all_be_library_tasks() -> None:
    source = f"{IMPORTS}class Own(Chat): pass\napp = App(name='own', paths=[Chat(model_id='/m'), Own(model_id='/m')])"

    assert described(load_app_source(source, MODULE)).library_paths is None


def test_only_tasks_of_the_library_are_built() -> None:
    description = described(App(name="chat", paths=[Chat(model_id="/m")]))
    assert description.library_paths is not None
    (path,) = description.library_paths

    with pytest.raises(DefinitionError, match=r"os\.system is not a task of cornserve_tasklib"):
        path.model_copy(update={"module": "os", "task": "system"}).build()
    with pytest.raises(DefinitionError, match="is not a task of cornserve_tasklib"):
        path.model_copy(update={"module": "cornserve_tasklib.llm", "task": "ChatRequest"}).build()

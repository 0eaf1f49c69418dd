"""Executor graphs that are recorded from the code of apps."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from cornserve import App, Task
from cornserve.app.graph import AppGraph, GraphModalities, GraphStep
from cornserve.app.graph_recording import record_graph
from cornserve.app.model_document import model_document
from cornserve.app.needed_components import needed_components
from cornserve.task.errors import DefinitionError
from cornserve_echo.stages import Caption, CaptionRequest, StageRequest, StageResult, StageTask, caption_app
from cornserve_tasklib import (
    Chat,
    ChatRequest,
    ChatResponse,
    Classify,
    CompletionRequest,
    Embed,
    EngineOptions,
    LLMTask,
    Mllm,
    OmniChat,
    Score,
    Speak,
    SpeakingChat,
    Transcribe,
)
from cornserve_tasklib.model_families import default_paths, planned_paths

ENCODER, LLM = StageTask(seconds={"encoder": 1}), StageTask(seconds={"llm": 1})
MONOLITH = StageTask(seconds={"encoder": 1, "llm": 1})
TEXT, IMAGE = CaptionRequest(), CaptionRequest(images=2)


def recorded(*paths: Task[Any, Any], probes: list[Any] | None = None) -> AppGraph:
    graph = record_graph(App(name="recorded", paths=[*paths], probes=probes or []))
    assert graph is not None
    return graph


def steps(*named: tuple[str, str]) -> tuple[GraphStep, ...]:
    return tuple(GraphStep(option=option, components=tuple(components.split())) for option, components in named)


def test_paths_are_recorded_as_steps_of_options_by_request_type() -> None:
    graph = record_graph(caption_app("captions", encoder=1, llm=2))

    assert graph is not None
    assert graph.components == {"encoder": (), "llm": ("encoder",)}
    assert graph.types == {"llm": ("llm",), "encoder+llm": ("encoder", "llm")}
    assert {name: option.components for name, option in graph.options.items()} == {
        "encoder+llm": ("encoder", "llm"),
        "llm": ("llm",),
        "encoder": ("encoder",),
    }
    assert [path.steps for path in graph.paths] == [
        {"llm": steps(("encoder+llm", "llm")), "encoder+llm": steps(("encoder+llm", "encoder llm"))},
        {"llm": steps(("llm", "llm")), "encoder+llm": steps(("encoder", "encoder"), ("llm", "llm"))},
        {
            "llm": steps(("encoder+llm", "llm")),
            "encoder+llm": steps(("encoder", "encoder"), ("encoder+llm", "llm")),
        },
    ]


def test_options_name_the_executor_and_the_settings_of_their_task() -> None:
    app = caption_app("captions", encoder=1, llm=2, gpus=3)
    graph = record_graph(app)

    assert graph is not None
    option = graph.options["llm"]
    assert (option.task, option.settings, option.gpus) == ("StageTask", {"seconds": {"llm": 2.0}, "gpus": 3}, 3)
    assert {option.executor for option in graph.options.values()} == app.executor_specs().keys()


def test_a_model_of_a_known_family_has_types_of_texts_and_images() -> None:
    graph = recorded(*planned_paths(default_paths("google/gemma-3-4b-it"), ()).values())

    assert graph.types == {"llm": ("llm",), "image_encoder+llm": ("image_encoder", "llm")}
    assert graph.options.keys() == {"image_encoder+llm", "llm", "image_encoder"}
    assert graph.modalities == GraphModalities(always=("llm",), inputs={"image": ("image_encoder",)})


def test_one_separate_encoder_encodes_images_and_videos() -> None:
    graph = recorded(*planned_paths(default_paths("Qwen/Qwen2.5-VL-3B-Instruct"), ()).values())

    both = "image_encoder+video_encoder"
    assert graph.types.keys() == {"llm", "image_encoder+llm", "video_encoder+llm", f"{both}+llm"}
    assert graph.options.keys() == {f"{both}+llm", "llm", both}
    assert [path.steps["video_encoder+llm"] for path in graph.paths] == [
        steps((f"{both}+llm", "video_encoder llm")),
        steps((both, "video_encoder"), ("llm", "llm")),
        steps((both, "video_encoder"), (f"{both}+llm", "llm")),
    ]


def test_a_model_with_two_encoders_has_types_of_both_and_options_with_joint_and_separate_encoders() -> None:
    paths = planned_paths(default_paths("Qwen/Qwen3-Omni-30B-A3B-Thinking"), ())
    graph = recorded(*paths.values())

    assert graph.types.keys() == {
        "llm",
        "image_encoder+llm",
        "audio_encoder+llm",
        "video_encoder+llm",
        "audio_encoder+image_encoder+llm",
        "audio_encoder+video_encoder+llm",
        "image_encoder+video_encoder+llm",
        "audio_encoder+image_encoder+video_encoder+llm",
    }
    vision, every = "image_encoder+video_encoder", "audio_encoder+image_encoder+video_encoder"
    assert graph.options.keys() == {f"{every}+llm", "llm", vision, "audio_encoder", every}
    both = "audio_encoder image_encoder"
    assert [path.steps["audio_encoder+image_encoder+llm"] for path in graph.paths] == [
        steps((f"{every}+llm", f"{both} llm")),
        steps((vision, "image_encoder"), ("audio_encoder", "audio_encoder"), ("llm", "llm")),
        steps((vision, "image_encoder"), ("audio_encoder", "audio_encoder"), (f"{every}+llm", "llm")),
        steps((every, both), ("llm", "llm")),
        steps((every, both), (f"{every}+llm", "llm")),
    ]


def test_types_have_the_same_names_if_only_some_paths_are_deployed() -> None:
    paths = list(default_paths("Qwen/Qwen2.5-VL-3B-Instruct").values())

    assert recorded(paths[0]).types.keys() == recorded(*paths).types.keys()


def test_components_are_split_where_a_path_runs_their_parts() -> None:
    paths = default_paths("Qwen/Qwen2.5-VL-3B-Instruct")
    graph = recorded(paths["monolith"], paths["ep-d"], paths["e-p-d"])

    parts = ("llm:prefill", "llm:decode")
    both = "image_encoder+video_encoder"
    assert graph.components == {
        "image_encoder": (),
        "video_encoder": (),
        "llm:prefill": ("image_encoder", "video_encoder"),
        "llm:decode": ("llm:prefill",),
    }
    assert graph.types["llm"] == parts
    assert graph.types["image_encoder+llm"] == ("image_encoder", *parts)
    assert {"llm:prefill", both, f"{both}+llm", f"{both}+llm:prefill"} < graph.options.keys()
    assert [path.steps["llm"] for path in graph.paths] == [
        steps((f"{both}+llm", "llm:prefill llm:decode")),
        steps((f"{both}+llm:prefill", "llm:prefill"), ("llm:decode-1gpu-1", "llm:decode")),
        steps(("llm:prefill", "llm:prefill"), ("llm:decode-1gpu-2", "llm:decode")),
    ]


def test_the_type_of_a_request_does_not_depend_on_parts() -> None:
    paths = default_paths("Qwen/Qwen3-0.6B")
    app = App("a", [paths["p-d"], paths["chat"]], shares=[1, 1])

    assert needed_components(app, ChatRequest.ask("Hello!"), "key", 0) == {"llm"}


@pytest.mark.parametrize(
    ("path", "component", "modalities"),
    [
        (Chat(model_id="/m"), "llm", {"always": ("llm",), "inputs": {}}),
        (Embed(model_id="/m"), "embedding", None),
        (Score(model_id="/m"), "scoring", None),
        (Classify(model_id="/m"), "classification", None),
        (Transcribe(model_id="/m"), "transcription", None),
        (Speak(model_id="/m"), "text_to_speech", None),
    ],
)
def test_a_model_of_one_component_has_one_type(path: Task[Any, Any], component: str, modalities: object) -> None:
    graph = recorded(path)

    assert graph.types == {component: (component,)}
    assert model_document("app", graph).get("modalities") == modalities


def test_an_image_model_runs_whole_or_in_components() -> None:
    graph = recorded(*default_paths("Qwen/Qwen-Image").values())
    whole = "text_encoder+denoiser+vae"

    assert graph.types == {whole: ("text_encoder", "denoiser", "vae")}
    assert [len(path.steps[whole]) for path in graph.paths] == [1, 3]
    assert graph.options.keys() == {whole, "denoiser", "text_encoder", "vae"}
    assert model_document("app", graph)["modalities"] == {
        "always": (),
        "inputs": {},
        "outputs": {"image": ("text_encoder", "denoiser", "vae")},
    }


class Complete(Task[CompletionRequest, ChatResponse]):
    def post_init(self) -> None:
        self.llm = LLMTask(model_id="/m")

    def invoke(self, request: CompletionRequest) -> ChatResponse:
        return self.llm.invoke(request)


def test_completions_have_a_default_probe() -> None:
    assert recorded(Complete()).types == {"llm": ("llm",)}


def test_chats_that_are_spoken_have_types_with_media_and_with_a_talker() -> None:
    types = recorded(SpeakingChat(model_id="/m", split_encoder=True)).types

    assert len(types) == 16
    assert set(types["image_encoder+llm+talker+vocoder"]) == {"image_encoder", "llm", "talker", "vocoder"}


def test_a_model_speaks_with_talker_and_vocoder_together_or_apart() -> None:
    chats: list[Task[Any, Any]] = [SpeakingChat(model_id="/m"), SpeakingChat(model_id="/m", split_vocoder=True)]
    graph = recorded(*chats, OmniChat(model_id="/m"))

    found = [[step.option for step in path.steps["llm+talker+vocoder"]] for path in graph.paths]
    media = "audio_encoder+image_encoder+video_encoder"
    assert found == [
        [f"{media}+llm", "talker+vocoder"],
        [f"{media}+llm", "talker", "vocoder"],
        [f"{media}+llm+talker+vocoder"],
    ]
    assert graph.components["vocoder"] == ("talker",)


def test_an_app_with_a_custom_request_type_needs_probes() -> None:
    assert record_graph(App(name="captions", paths=[Caption(llm=MONOLITH)])) is None


def test_probes_replace_the_default_ones() -> None:
    assert recorded(Mllm(model_id="/m"), probes=[ChatRequest.ask("Hello!")]).types == {"llm": ("llm",)}


def test_options_with_equal_components_have_different_names() -> None:
    engines = [EngineOptions(tensor_parallel_size=count, seed=seed) for count, seed in ((1, 0), (2, 0), (2, 1))]
    graph = recorded(*(Chat(model_id="/m", options=engine) for engine in engines))

    assert [(name, option.gpus) for name, option in graph.options.items()] == [
        ("llm-1gpu", 1),
        ("llm-2gpu-1", 2),
        ("llm-2gpu-2", 2),
    ]


class Debate(Task[ChatRequest, ChatResponse]):
    """Two models answer, and the first one writes the last answer if it sees the others' text."""

    first: str
    second: str

    def post_init(self) -> None:
        self.one, self.two = LLMTask(model_id=self.first), LLMTask(model_id=self.second)

    def invoke(self, request: ChatRequest) -> ChatResponse:
        drafts = [self.one.invoke(request), self.two.invoke(request)]
        return self.one.invoke(ChatRequest.ask(" ".join(draft.text for draft in drafts)))


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("big/model-7b", "small/model-1b", {"model-1b/llm", "model-7b/llm"}),
        ("one/model", "two/model", {"one/model/llm", "two/model/llm"}),
        ("one/model", "one/model", {"llm"}),
    ],
)
def test_components_of_several_models_have_the_names_of_their_models(first: str, second: str, names: set[str]) -> None:
    graph = recorded(Debate(first=first, second=second))

    assert graph.components.keys() == graph.options.keys() == names


class Transcript(BaseModel):
    text: str


class Chain(Task[Transcript, StageResult]):
    """Runs components one after the other, each in its own executor."""

    names: list[str]
    demands_first: bool = False

    def post_init(self) -> None:
        self.stages = [StageTask(seconds=dict.fromkeys(name.split("+"), 1.0)) for name in self.names]

    def invoke(self, request: Transcript) -> StageResult:
        if request.text == "refused" and len(self.stages) > 1:
            raise ValueError("one stage only")
        results: list[StageResult] = []
        for stage in self.stages:
            items = dict.fromkeys(stage.seconds, 1.0)
            inputs = [result.result for result in results[-1:]]
            results.append(stage.invoke(StageRequest(items=items, inputs=inputs)))
            if self.demands_first and not results[0].text:
                break
        return results[-1]


def test_the_order_of_components_follows_from_all_paths() -> None:
    paths = [["vocoder+talker+llm"], ["llm+talker", "vocoder"], ["llm", "talker+vocoder"]]
    graph = recorded(*(Chain(names=names) for names in paths), probes=[Transcript(text="")])

    assert graph.components == {"llm": (), "talker": ("llm",), "vocoder": ("talker",)}
    assert graph.types == {"llm+talker+vocoder": ("llm", "talker", "vocoder")}


def test_a_loop_between_components_leaves_them_in_the_order_of_the_first_round() -> None:
    graph = recorded(Chain(names=["llm", "generator", "llm"]), probes=[Transcript(text="")])

    assert graph.components == {"llm": (), "generator": ("llm",)}


def test_a_path_that_raises_is_refused_with_the_type_and_its_name() -> None:
    paths = [Chain(names=["llm"]), Chain(names=["llm", "talker"])]

    message = (
        r"path 2 \(Chain\) of app 'recorded' cannot serve requests of the type llm: it raises "
        r"ValueError\('one stage only'\) for Transcript\(text='refused'\)"
    )
    with pytest.raises(DefinitionError, match=message):
        recorded(*paths, probes=[Transcript(text="refused")])


def test_paths_that_need_different_components_are_refused_by_name() -> None:
    message = (
        r"path 2 \(Chain\) of app 'recorded' is not an alternative for requests of the type encoder\+llm: it needs "
        r"encoder, llm, vision, but path 1 \(Chain\) needs encoder, llm: correct `components`"
    )
    paths = [Chain(names=["encoder", "llm"]), Chain(names=["encoder", "vision", "llm"])]
    with pytest.raises(DefinitionError, match=message):
        recorded(*paths, probes=[Transcript(text="")])


def test_a_path_that_waits_for_a_value_is_not_planned_for_the_type() -> None:
    names = ["encoder", "llm"]
    graph = recorded(Chain(names=names), Chain(names=names, demands_first=True), probes=[Transcript(text="")])

    assert [path.steps.keys() for path in graph.paths] == [{"encoder+llm"}, set()]


class Debated(Task[Transcript, StageResult]):
    """A model that calls one of its stages, or two of them, after it has read a value of the first stage."""

    def post_init(self) -> None:
        self.llm, self.draw, self.sing = (StageTask(seconds={name: 1.0}) for name in ("llm", "draw", "sing"))

    def invoke(self, request: Transcript) -> StageResult:
        answer = self.llm.invoke(StageRequest(items={"llm": 1.0}, text=request.text))
        for name, stage in (("draw", self.draw), ("sing", self.sing)):
            if name in answer.text:
                stage.invoke(StageRequest(items={name: 1.0}))
        return answer


def test_unit_tasks_that_follow_only_after_a_value_are_options_of_one_component() -> None:
    graph = recorded(Debated(), probes=[Transcript(text="")])

    assert graph.types == {"llm": ("llm",)}
    assert graph.components == {"llm": (), "stage": (), "stage-2": ()}
    assert {name: option.settings["seconds"] for name, option in graph.options.items()} == {
        "llm": {"llm": 1.0},
        "stage": {"draw": 1.0},
        "stage-2": {"sing": 1.0},
    }
    assert graph.paths[0].conditional == steps(("stage", "stage"), ("stage-2", "stage-2"))
    assert graph.type_of(["llm", "stage"]) == "llm"
    assert model_document("app", graph)["paths"] == [("llm", "stage", "stage-2")]


class Picky(Task[ChatRequest, ChatResponse]):
    refuses: bool = True

    def post_init(self) -> None:
        self.llm = LLMTask(model_id="/m")

    def invoke(self, request: ChatRequest) -> ChatResponse:
        if self.refuses and request.messages[0].role != "system":
            raise ValueError("a system message is missing")
        return self.llm.invoke(request)


def test_a_default_probe_that_no_path_accepts_is_left_out() -> None:
    assert record_graph(App(name="picky", paths=[Picky()])) is None


def test_a_default_probe_that_one_path_accepts_is_required_of_all() -> None:
    with pytest.raises(DefinitionError, match=r"path 1 \(Picky\) of app 'recorded' cannot serve .* of the type llm"):
        recorded(Picky(), Picky(refuses=False))


def test_a_probe_of_another_type_is_refused() -> None:
    with pytest.raises(DefinitionError, match="must be requests of the type CaptionRequest, not Transcript"):
        App(name="captions", paths=[Caption(llm=MONOLITH)], probes=[Transcript(text="")])


def test_the_same_type_is_recorded_once() -> None:
    graph = recorded(Caption(llm=LLM, encoder=ENCODER), probes=[TEXT, IMAGE, CaptionRequest(images=9)])

    assert list(graph.types) == ["llm", "encoder+llm"]

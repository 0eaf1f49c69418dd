"""The mixes with which options are measured."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import pytest
from pydantic_core import to_json

from cornserve import App, Task
from cornserve.app.graph_recording import record_graph
from cornserve.profiler.option_mixes import MeasuredOption, OptionMix, RequestsRefusedError, measured_options
from cornserve.profiler.request_templates import FixedRequest
from cornserve_echo.stages import Caption, CaptionRequest, StageRequest, StageResult, StageTask
from cornserve_tasklib import Audio, ChatRequest

TEXT, IMAGES = b'{"text": "a"}', b'{"images": 2}'
SEPARATE = Caption(llm=StageTask(seconds={"llm": 0.2}), encoder=StageTask(seconds={"encoder": 0.1}))
MONOLITH = Caption(llm=StageTask(seconds={"encoder": 0.1, "llm": 0.2}))


def options(paths: list[Caption], bodies: list[bytes], *only: str) -> dict[str, MeasuredOption]:
    probes = [CaptionRequest(), CaptionRequest(images=1)]
    app = App(name="caption", paths=[*paths], probes=probes)
    graph = record_graph(app)
    assert graph is not None
    return {
        option.name: option for option in measured_options(app, graph, [FixedRequest(body) for body in bodies], only)
    }


def sent(mix: OptionMix) -> tuple[bytes, ...]:
    return tuple(islice(mix.requests(), len(mix.templates)))


def mixes(option: MeasuredOption) -> list[list[tuple[str, float]]]:
    return [[("+".join(entry.components), entry.share) for entry in mix.mix] for mix in option.mixes]


def test_an_option_with_several_components_is_measured_with_several_mixes() -> None:
    found = options([MONOLITH, SEPARATE], [TEXT, IMAGES, TEXT, TEXT])
    assert mixes(found["encoder+llm"]) == [
        [("encoder+llm", 1)],
        [("llm", 1)],
        [("llm", 0.75), ("encoder+llm", 0.25)],
    ]
    assert [sent(mix) for mix in found["encoder+llm"].mixes] == [
        (IMAGES,),
        (TEXT, TEXT, TEXT),
        (TEXT, IMAGES, TEXT, TEXT),
    ]


def test_options_with_one_component_are_measured_with_the_requests_that_need_them() -> None:
    found = options([SEPARATE], [TEXT, IMAGES])
    assert {name: mixes(option) for name, option in found.items()} == {
        "llm": [[("llm", 1)]],
        "encoder": [[("encoder", 1)]],
    }
    assert sent(found["encoder"].mixes[0]) == (IMAGES,)


def test_options_that_no_request_needs_are_left_out() -> None:
    assert list(options([SEPARATE], [TEXT])) == ["llm"]


def test_the_second_mix_can_come_from_another_path() -> None:
    hybrid = Caption(llm=MONOLITH.llm, encoder=SEPARATE.encoder)
    found = options([MONOLITH, hybrid], [IMAGES])
    assert mixes(found["encoder+llm"]) == [[("encoder+llm", 1)], [("llm", 1)]]
    assert [mix.path for mix in found["encoder+llm"].mixes] == [0, 1]


def test_a_set_of_components_is_measured_on_the_path_on_which_most_requests_need_it() -> None:
    hybrid = Caption(llm=MONOLITH.llm, encoder=SEPARATE.encoder)
    found = options([MONOLITH, hybrid], [TEXT, IMAGES])
    [images, both, own] = found["encoder+llm"].mixes
    assert (images.path, sent(images)) == (0, (IMAGES,))
    assert (both.path, sent(both)) == (1, (TEXT, IMAGES))
    assert (own.path, sent(own)) == (0, (TEXT, IMAGES))


@pytest.mark.parametrize(
    ("bodies", "only", "message"),
    [
        ([TEXT, b'{"images": -1}'], [], "request 2 is not a request of caption: images: must be greater than or equal"),
        ([TEXT], ["encoder"], r"no request needs the option encoder \(encoder\): add such requests, or leave it out"),
        ([TEXT], ["talker"], "unknown option 'talker' of caption: give one of llm, encoder"),
    ],
)
def test_requests_and_options_are_refused_by_name(bodies: list[bytes], only: list[str], message: str) -> None:
    with pytest.raises(RequestsRefusedError, match=message):
        options([SEPARATE], bodies, *only)


class SoundListener(Task[ChatRequest, StageResult]):
    """Refuses audio that is not the sound of a video."""

    def post_init(self) -> None:
        self.llm = StageTask(seconds={"llm": 0.1})

    def invoke(self, request: ChatRequest) -> StageResult:
        if any(isinstance(medium, Audio) and not medium.of_video for medium in request.media):
            raise ValueError("the chat contains audio")
        return self.llm.invoke(StageRequest(items={"llm": 1}))


def test_the_sound_of_a_video_is_not_other_audio() -> None:
    app = App(name="listen", paths=[SoundListener()])
    graph = record_graph(app)
    assert graph is not None

    def measured(part: Mapping[str, object], **fields: object) -> list[MeasuredOption]:
        body = to_json({"messages": [{"role": "user", "content": [part]}], **fields})
        return measured_options(app, graph, [FixedRequest(body)], [])

    video = {"type": "video_url", "video_url": {"url": "data:,"}}
    [option] = measured(video, mm_processor_kwargs={"use_audio_in_video": True})
    assert option.name == "llm"
    with pytest.raises(RequestsRefusedError, match="the chat contains audio"):
        measured({"type": "audio_url", "audio_url": {"url": "data:,"}})

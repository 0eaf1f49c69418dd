"""The process that measures apps for controllers: its refusals before anything starts, and its chats."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from cornserve.app.planning import WorkloadType
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppSource, AppSpec
from cornserve.bench.workload_chats import GeneratedChat, GeneratedVideo
from cornserve.control.launcher.base import SlotCount
from cornserve.control.profiling.job import ProfilingJob
from cornserve.home import Home
from cornserve.profiler.device import Device, NoSlotsError
from cornserve.profiler.store import ProfileStore
from cornserve.profiler.worker import Messages, UnmeasurableError, chat_of_sizes, chat_of_type, measure, outcome
from cornserve_echo.stages import StageTask
from cornserve_planner.solve.budget import Budget

SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.1, gpus=0)
"""


LATE = """
from cornserve import App, Task
from cornserve_echo.stages import CaptionRequest, StageRequest, StageResult, StageTask


class Sketch(Task[CaptionRequest, StageResult]):
    llm: StageTask
    draw: StageTask

    def invoke(self, request: CaptionRequest) -> StageResult:
        answer = self.llm.invoke(StageRequest(items={"llm": 1}, text=request.text))
        if "draw" in answer.text:
            return self.draw.invoke(StageRequest(items={"draw": 1}, text="drawn"))
        return answer


path = Sketch(llm=StageTask(seconds={"llm": 0.01}), draw=StageTask(seconds={"draw": 0.1}))
app = App("caption", [path], probes=[CaptionRequest()])
"""


def job(
    *components: str, seconds: float = 600, source: str = SOURCE, gpu_types: Sequence[str] = (), **fields: Any
) -> ProfilingJob:
    workload = {"captions": WorkloadType(components=[*components], share=1.0)}
    return ProfilingJob(
        app="caption",
        uid="uid",
        spec=AppSpec(
            source=AppSource(inline=source),
            executors=[ExecutorOverride(name=name, gpu_type=name) for name in gpu_types],
        ),
        workload=workload,
        seconds=seconds,
        gateway="http://127.0.0.1:1",
        place="a cluster",
        **fields,
    )


def planned_on(**gpu_types: str) -> ProfilingJob:
    return job("encoder", "llm").model_copy(update={"gpu_types": gpu_types})


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (job("audio"), "planning.workload.captions: needs audio, but no request of caption does: its types"),
        (
            job("encoder", "llm", source=SOURCE.replace("gpus=0", "gpus=2"), gpus=1),
            "the budget of 1 GPU: to serve every type, a plan needs at least 2 GPUs: one replica each of encoder.llm",
        ),
        (job("encoder", "llm", seconds=4), "the budget of 4 s .* is too small: .*: set profiling_seconds to at least "),
        (job("encoder", "llm", gpu_types=["a100", "h100"]), "need the GPU types a100, h100: give a profile"),
        (planned_on(llm="a100"), "planning.gpu_types.llm: is a100, but the options are measured on cluster: set"),
        (planned_on(audio="a100"), "planning.gpu_types.audio: is not an option of caption: use one of "),
    ],
    ids=["workload", "budget", "time", "types", "type of the plan", "option of the plan"],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    job: ProfilingJob, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnmeasurableError, match=message):
        measure(job, Home(tmp_path), Messages(io.StringIO(), job))


def test_measurements_end_early_without_a_gateway_and_next_to_another_profiler(tmp_path: Path) -> None:
    app = job("encoder", "llm").model_copy(update={"home": tmp_path})
    messages = Messages(io.StringIO(), app)
    assert "cannot connect to Cornserve at http://127.0.0.1:1" in outcome(app, None, messages).interruption
    with ProfileStore.of(Home(tmp_path)).locked():
        assert (
            "other measurements, of `cornserve profile` or of a controller, use"
            in outcome(app, None, messages).interruption
        )
    refused = job("audio").model_copy(update={"home": tmp_path})
    assert "no request of caption does" in outcome(refused, None, messages).error


def test_the_process_ends_while_its_input_is_open() -> None:
    refused = job("llm", source="no_app = 1")
    process = Popen([sys.executable, "-m", "cornserve.profiler.worker"], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(refused.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        message = refused.message(process.stdout.read().decode())
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert message is not None
    assert "must define exactly one App" in message.error


def test_options_that_run_after_a_value_are_refused(tmp_path: Path) -> None:
    late = job("llm", source=LATE)
    with pytest.raises(UnmeasurableError, match="runs only after a value has arrived, and cannot be measured alone"):
        measure(late, Home(tmp_path), Messages(io.StringIO(), late))


def test_plans_for_more_slots_than_exist_are_refused() -> None:
    device = Device("small", "CPU", "6.1", "small", SlotCount("CPU slot", 4, 2))
    device.check_plan(Budget(4), "planning.gpus")
    with pytest.raises(NoSlotsError, match=r"planning\.gpus 5: 4 CPU slots of the type small exist"):
        device.check_plan(Budget(5), "planning.gpus")
    device.check_plan(Budget(gpus_of={"small": 4, "large": 9}), "planning.gpus")
    with pytest.raises(NoSlotsError, match=r"planning\.gpus 5: 4 CPU slots of the type small exist"):
        device.check_plan(Budget(gpus_of={"small": 5}), "planning.gpus")


def test_results_of_pods_depend_on_the_image_of_the_executor() -> None:
    old, new = (
        Device.of_cluster(None, "a cluster", cpu_image="cpu:1", gpu_image=f"gpu:{tag}").conditions for tag in (1, 2)
    )
    gpu, cpu = (StageTask(seconds={"llm": 0.1}, gpus=gpus).spec for gpus in (1, 0))

    assert new(gpu).changes_since(old(gpu)) == ["image was gpu:1, is gpu:2"]
    assert new(cpu).changes_since(old(cpu)) == []


def test_chats_have_the_mean_sizes_of_their_type() -> None:
    sizes = {"text_tokens": 10.4, "images": 2, "image_pixels": 2 * 640 * 640, "output_tokens": 20}
    assert chat_of_sizes(sizes) == GeneratedChat(10, ((640, 640), (640, 640)), 20)
    assert chat_of_sizes({"images": 1, "audio_seconds": 0}).images == ((448, 448),)
    media = chat_of_sizes({"text_tokens": 5, "audio_seconds": 3, "audio_tokens": 10, "video_tokens": 512.4})
    assert (media.audios, media.videos) == ((3,), (GeneratedVideo(448, 448, 4, 2),))
    with pytest.raises(UnmeasurableError, match="has output_images, which cannot be generated: define probes"):
        chat_of_sizes({"text_tokens": 5, "output_images": 3})
    assert chat_of_sizes({"text_tokens": 5}) == GeneratedChat(5, (), 0)


def test_responses_of_types_with_a_talker_are_spoken() -> None:
    sizes = {"text_tokens": 5.0, "output_audio_seconds": 3.0}
    spoken, text = (
        WorkloadType(components=[*names], share=0.5, sizes=sizes) for names in (("llm", "talker"), ("llm",))
    )
    assert chat_of_type(spoken) == GeneratedChat(5, (), 0, is_spoken=True)
    assert chat_of_type(text) == GeneratedChat(5, (), 0)

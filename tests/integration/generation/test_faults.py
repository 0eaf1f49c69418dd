"""Faults while apps generate speech and images in separate executors: kills of each stage, and disconnects."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Generator as PyGenerator
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from cornserve.client import Client, ClientError
from tests.chaos.conftest import running_instance
from tests.chaos.report import FaultRecorder, FaultResult
from tests.executor_metrics import executor_total, sum_of
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.serving.image_chats import noise_part, noise_png, text_part
from tests.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

RUNNING = "cornserve_executor_invocations_running"
HELD = 'cornserve_transport_slab_bytes{state="held"}'
MESSAGES = [{"role": "user", "content": [text_part("this?"), noise_part(1)]}]
SPEAK = {
    "chat": {"messages": MESSAGES, "max_tokens": 12, "temperature": 0, "ignore_eos": True},
    "voice": "chelsie",
    "seed": 1,
}
DRAW = {"prompt": "corn", "size": "256x256", "seed": 1, "num_inference_steps": 60}
DRAW_SMALL = DRAW | {"size": "128x128", "num_inference_steps": 40}
PNG = noise_png(1)


@dataclass(frozen=True)
class Generator:
    """An app of a tiny model, and a request whose result does not depend on chance."""

    name: str
    model: str
    request: dict[str, Any]

    def open(self, client: Client) -> PyGenerator[Any, None, None]:
        """Yields the items of the stream, and the response."""
        return client.stream(self.name, self.request)

    def result(self, last: Any) -> str:
        """Returns the speech or the image of the response in base64."""
        response = last.response
        found: str = response["speech"]["audio"] if "speech" in response else response["images"][0]["b64_json"]
        return found

    def generate(self, machine: CliInstance, first_item: Future[None] | None = None) -> str:
        """Returns the result. Completes `first_item` when the stream has an item."""
        with Client(machine.url) as client:
            *_, last = self._signal_first(self.open(client), first_item)
        return self.result(last)

    @staticmethod
    def _signal_first(stream: Iterator[Any], first_item: Future[None] | None) -> Iterator[Any]:
        for number, item in enumerate(stream):
            if first_item is not None and number == 0:
                first_item.set_result(None)
            yield item


@dataclass(frozen=True)
class Editor(Generator):
    """An app that edits an image, which clients send as a form."""

    def open(self, client: Client) -> PyGenerator[Any, None, None]:
        return client.edit_events(self.name, PNG, progress=True, **self.request)

    def result(self, last: Any) -> str:
        image: str = last["b64_json"]
        return image


@dataclass(frozen=True)
class Narrator(Generator):
    """An app that speaks a text. Its result depends on how far the speech has come."""

    def result(self, last: Any) -> str:
        return str(last.response["seconds"])


SPEAKER = Generator("speaker", "tiny_qwen3omni_talker", SPEAK)
STATES_SPEAKER = Generator("states-speaker", "tiny_qwen25omni_talker", SPEAK)
"""Its talker reads the thinker's states while they are computed."""
SPLIT_SPEAKER = Generator("split-speaker", "split-omni", SPEAK)
"""Its talker and its vocoder run in separate executors, with a copy of the speaker's model."""
PAINTER = Generator("painter", "tiny_qwenimage", DRAW)
EDITOR = Editor("editor", "tiny_qwenimageedit", DRAW_SMALL)
WHOLE_PAINTER = Generator("whole-painter", "tiny_qwenimage", DRAW_SMALL)
NARRATOR = Narrator(
    "narrator", "tiny_vits", {"input": "The corn is very ripe and tall. " * 100, "seed": 1, "speed": 0.25}
)
GENERATORS = [SPEAKER, STATES_SPEAKER, SPLIT_SPEAKER, PAINTER, EDITOR, WHOLE_PAINTER, NARRATOR]
STREAMING_STAGES = [
    (SPEAKER, "thinker"),
    (SPEAKER, "talker"),
    (STATES_SPEAKER, "thinker"),
    (STATES_SPEAKER, "talker"),
    (SPLIT_SPEAKER, "talker"),
    (SPLIT_SPEAKER, "vocoder"),
    (PAINTER, "image_denoiser"),
    (EDITOR, "image_denoiser"),
    (WHOLE_PAINTER, "image_generator"),
    (NARRATOR, "text_to_speech"),
]
"""The stages that run while the client receives items."""
OTHER_STAGES = [
    (SPEAKER, "encoder"),
    (PAINTER, "prompt_encoder"),
    (PAINTER, "latent_decoder"),
    (EDITOR, "edit_prompt_encoder"),
    (EDITOR, "source_encoder"),
]


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_qwen3omni_talker: Path,
    tiny_qwen25omni_talker: Path,
    tiny_qwenimage: Path,
    tiny_qwenimageedit: Path,
    tiny_vits: Path,
) -> Iterator[CliInstance]:
    speech = ["--share", "e-speech=1", "--option"]
    copied = tmp_path_factory.mktemp("models") / SPLIT_SPEAKER.model
    shutil.copytree(tiny_qwen3omni_talker, copied)
    deployments = [
        (SPEAKER, tiny_qwen3omni_talker, [*speech, "talker.max_tokens=200"]),
        (STATES_SPEAKER, tiny_qwen25omni_talker, [*speech, "talker.max_tokens=180"]),
        (SPLIT_SPEAKER, copied, ["--share", "speech-split=1", "--option", "talker.max_tokens=80"]),
        (PAINTER, tiny_qwenimage, ["--share", "split=1"]),
        (EDITOR, tiny_qwenimageedit, ["--share", "split=1"]),
        (WHOLE_PAINTER, tiny_qwenimage, []),
        (NARRATOR, tiny_vits, []),
    ]
    with running_instance(tmp_path_factory.mktemp("faults") / "home", cpu_slots=24) as machine:
        for app, model, options in deployments:
            machine.do("deploy", str(model), "--name", app.name, *options)
        yield machine


@pytest.fixture(scope="module")
def results(machine: CliInstance) -> dict[str, str]:
    """The result of each app without a fault."""
    return {app.name: app.generate(machine) for app in GENERATORS}


@pytest.mark.parametrize(("app", "stage"), STREAMING_STAGES)
def test_a_stage_killed_during_a_stream_leads_to_the_same_result_or_an_error(
    machine: CliInstance, results: dict[str, str], app: Generator, stage: str, record_fault: FaultRecorder
) -> None:
    first_item: Future[None] = Future()
    with ThreadPoolExecutor(1) as thread:
        work = thread.submit(app.generate, machine, first_item)
        first_item.result(timeout=60)
        (executor,) = _executors(machine, app, stage)
        executor.kill()
        outcome = _outcome(work, results[app.name])

    _expect_recovery(machine, results, app)
    record_fault(FaultResult(f"kill -9 of {stage} of {app.name} during a stream", 1, 1, outcome, leaks=0))


@pytest.mark.parametrize(("app", "stage"), OTHER_STAGES)
def test_a_stage_killed_before_its_output_leads_to_the_same_result_or_an_error(
    machine: CliInstance, results: dict[str, str], app: Generator, stage: str, record_fault: FaultRecorder
) -> None:
    executors = _executors(machine, app, stage)
    for executor in executors:
        executor.suspend()  # A stage that does not run cannot end early.
    with ThreadPoolExecutor(1) as thread:
        work = thread.submit(app.generate, machine)
        wait_until(lambda: _gateway_requests(machine, app) > 0)
        for executor in executors:
            executor.kill()
        outcome = _outcome(work, results[app.name])

    _expect_recovery(machine, results, app)
    record_fault(FaultResult(f"kill -9 of {stage}", 1, 1, outcome, leaks=0))


@pytest.mark.parametrize("app", [app for app in GENERATORS if app not in (SPLIT_SPEAKER, NARRATOR)])
def test_a_disconnect_stops_all_stages_and_frees_their_tensors(
    machine: CliInstance, app: Generator, record_fault: FaultRecorder
) -> None:
    with Client(machine.url) as client:
        stream = app.open(client)
        next(stream)
        assert executor_total(machine.url, RUNNING) > 0
        stream.close()
        closed = time.monotonic()

    wait_until(lambda: executor_total(machine.url, RUNNING) + executor_total(machine.url, HELD) == 0, seconds=10)
    outcome = f"stopped in {time.monotonic() - closed:.2f} s"
    record_fault(FaultResult(f"disconnect from {app.name}", 1, 1, outcome, leaks=0))


def _outcome(work: Future[str], expected: str) -> str:
    """Returns how the request ended. It must end, and a result must be the expected one."""
    try:
        assert work.result(timeout=120) == expected
    except ClientError as error:
        return str(error)
    return "same result"


def _expect_recovery(machine: CliInstance, results: dict[str, str], app: Generator) -> None:
    assert app.generate(machine) == results[app.name]
    wait_until(lambda: executor_total(machine.url, RUNNING) == 0)
    wait_until(lambda: executor_total(machine.url, HELD) == 0)


def _executors(machine: CliInstance, app: Generator, stage: str) -> list[psutil.Process]:
    """Returns the processes of a stage: one, or those for images and audio."""
    executors = {process: " ".join(process.cmdline()) for process in machine.processes("cornserve_executors.base")}
    return [
        process
        for process, command in executors.items()
        if f"/{stage}-" in command and re.search(rf'/{app.model}["-]', command)
    ]


def _gateway_requests(machine: CliInstance, app: Generator) -> float:
    metric = f'cornserve_gateway_requests_running{{app="{app.name}"}}'
    return sum_of(metric, f"{machine.url}/metrics")

"""Faults while image models draw and edit in separate executors."""

from __future__ import annotations

from collections.abc import Generator as PyGenerator
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cornserve.client import Client
from tests.chaos.report import FaultRecorder
from tests.integration.generation.faults import PARTS, FaultyInstance, Generator, GeneratorDeployment
from tests.integration.serving.image_chats import noise_png

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

DRAW = {"prompt": "corn", "size": "256x256", "seed": 1, "num_inference_steps": 24}
DRAW_SMALL = DRAW | {"size": "128x128", "num_inference_steps": 16}
PNG = noise_png(1)


@dataclass(frozen=True)
class Editor(Generator):
    """An app that edits an image, which clients send as a form."""

    def open(self, client: Client) -> PyGenerator[Any, None, None]:
        return client.edit_events(self.name, PNG, progress=True, **self.request)

    def result(self, last: Any) -> str:
        image: str = last["b64_json"]
        return image


PAINTER = Generator("painter", "tiny_qwenimage", DRAW)
EDITOR = Editor("editor", "tiny_qwenimageedit", DRAW_SMALL)
STREAMING_STAGES = [(PAINTER, "image_denoiser"), (EDITOR, "image_denoiser")]
OTHER_STAGES = [
    (PAINTER, "prompt_encoder"),
    (PAINTER, "latent_decoder"),
    (EDITOR, "edit_prompt_encoder"),
    (EDITOR, "source_encoder"),
]


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_qwenimage: Path,
    tiny_qwenimageedit: Path,
    fork_variables: dict[str, str],
) -> Iterator[FaultyInstance]:
    deployments = [
        GeneratorDeployment(PAINTER, tiny_qwenimage, ["--share", "split=1"]),
        GeneratorDeployment(EDITOR, tiny_qwenimageedit, ["--share", "split=1"]),
    ]
    with FaultyInstance.running(tmp_path_factory.mktemp("faults") / "home", deployments, fork_variables) as instance:
        yield instance


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("app", "stage"), STREAMING_STAGES)
def test_a_stage_killed_during_a_stream_leads_to_the_same_stream(
    instance: FaultyInstance, app: Generator, stage: str, part: float, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_during_stream(app, stage, part))


@pytest.mark.parametrize(("app", "stage"), OTHER_STAGES)
def test_a_stage_killed_before_its_output_leads_to_the_same_result_or_an_error(
    instance: FaultyInstance, app: Generator, stage: str, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_before_output(app, stage))


@pytest.mark.parametrize("app", [PAINTER, EDITOR])
def test_a_disconnect_stops_all_stages_and_frees_their_tensors(
    instance: FaultyInstance, app: Generator, record_fault: FaultRecorder
) -> None:
    record_fault(instance.disconnect(app.with_fields(num_inference_steps=100)))

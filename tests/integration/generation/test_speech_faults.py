"""Faults while a Qwen3-Omni and a text-to-speech model speak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.report import FaultRecorder
from tests.integration.generation.faults import FaultyInstance, Generator, GeneratorDeployment
from tests.integration.generation.speakers import SPEAK
from tests.integration.serving.speaking_chats import speech_options

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Narrator(Generator):
    """An app that speaks a text. Its result depends on how far the speech has come."""

    def result(self, last: Any) -> str:
        return str(last.response["seconds"])


SPEAKER = Generator("speaker", "tiny_qwen3omni_talker", SPEAK)
NARRATOR = Narrator(
    "narrator", "tiny_vits", {"input": "The corn is very ripe and tall. " * 100, "seed": 1, "speed": 0.25}
)


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory, tiny_qwen3omni_talker: Path, tiny_vits: Path
) -> Iterator[FaultyInstance]:
    deployments = [
        GeneratorDeployment(SPEAKER, tiny_qwen3omni_talker, speech_options("e-speech", 200)),
        GeneratorDeployment(NARRATOR, tiny_vits),
    ]
    with FaultyInstance.running(tmp_path_factory.mktemp("faults") / "home", deployments) as instance:
        yield instance


@pytest.mark.parametrize(("app", "stage"), [(SPEAKER, "thinker"), (SPEAKER, "talker"), (NARRATOR, "text_to_speech")])
def test_a_stage_killed_during_a_stream_leads_to_the_same_result_or_an_error(
    instance: FaultyInstance, app: Generator, stage: str, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_during_stream(app, stage))


@pytest.mark.parametrize(("app", "stage"), [(SPEAKER, "encoder")])
def test_a_stage_killed_before_its_output_leads_to_the_same_result_or_an_error(
    instance: FaultyInstance, app: Generator, stage: str, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_before_output(app, stage))


@pytest.mark.parametrize("app", [SPEAKER])
def test_a_disconnect_stops_all_stages_and_frees_their_tensors(
    instance: FaultyInstance, app: Generator, record_fault: FaultRecorder
) -> None:
    record_fault(instance.disconnect(app))

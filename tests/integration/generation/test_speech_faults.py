"""Faults while a Qwen3-Omni speaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.report import FaultRecorder
from tests.integration.generation.faults import PARTS, FaultyInstance, Generator, GeneratorDeployment
from tests.integration.generation.speakers import SPEAK
from tests.integration.serving.speaking_chats import speech_options

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]


SPEAKER = Generator("speaker", "tiny_qwen3omni_talker", SPEAK)


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory, tiny_qwen3omni_talker: Path, fork_variables: dict[str, str]
) -> Iterator[FaultyInstance]:
    deployments = [GeneratorDeployment(SPEAKER, tiny_qwen3omni_talker, speech_options("e-speech", 200))]
    with FaultyInstance.running(tmp_path_factory.mktemp("faults") / "home", deployments, fork_variables) as instance:
        yield instance


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("app", "stage"), [(SPEAKER, "thinker"), (SPEAKER, "talker")])
def test_a_stage_killed_during_a_stream_leads_to_the_same_stream(
    instance: FaultyInstance, app: Generator, stage: str, part: float, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_during_stream(app, stage, part))


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

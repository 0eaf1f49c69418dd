"""Kills of executors on transformers and diffusers, which `cornserve up` starts, while they generate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.report import FaultRecorder
from tests.integration.generation.faults import FaultyInstance, Generator, GeneratorDeployment

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Narrator(Generator):
    """An app that speaks a text. Its result depends on how far the speech has come."""

    def items(self, items: Sequence[Any]) -> str:
        return ""

    def result(self, last: Any) -> str:
        return str(last.response["seconds"])


PAINTER = Generator(
    "painter", "tiny_qwenimage", {"prompt": "corn", "size": "128x128", "seed": 1, "num_inference_steps": 16}
)
NARRATOR = Narrator(
    "narrator", "tiny_vits", {"input": "The corn is very ripe and tall. " * 12, "seed": 1, "speed": 0.25}
)


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory, tiny_qwenimage: Path, tiny_vits: Path, fork_variables: dict[str, str]
) -> Iterator[FaultyInstance]:
    deployments = [GeneratorDeployment(PAINTER, tiny_qwenimage), GeneratorDeployment(NARRATOR, tiny_vits)]
    with FaultyInstance.running(tmp_path_factory.mktemp("faults") / "home", deployments, fork_variables) as instance:
        yield instance


@pytest.mark.parametrize(("app", "stage"), [(PAINTER, "image_generator"), (NARRATOR, "text_to_speech")])
def test_an_engine_killed_during_a_stream_leads_to_the_same_stream(
    instance: FaultyInstance, app: Generator, stage: str, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_during_stream(app, stage))


def test_a_disconnect_stops_the_engine(instance: FaultyInstance, record_fault: FaultRecorder) -> None:
    record_fault(instance.disconnect(PAINTER.with_fields(num_inference_steps=100)))

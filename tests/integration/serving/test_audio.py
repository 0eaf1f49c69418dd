"""Apps with an audio encoder. An executor of the echo package receives the embeddings, in place of a language model."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.audio import audio_file, sound
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import Part, sum_metric
from tests.integration.serving.shared_encoder import are_encoded_together, encoder_users
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

APP = """
from cornserve import App, Task
from cornserve_echo.stages import StageRequest, StageResult, StageTask
from cornserve_tasklib import ChatRequest, EncoderTask


class Listen(Task[ChatRequest, StageResult]):
    def post_init(self) -> None:
        self.encoder = EncoderTask(model_id={model!r}, modality="audio")
        self.reader = StageTask(seconds={{"reader": 0}}, gpus=0, concurrency=64)

    def invoke(self, request: ChatRequest) -> StageResult:
        embeddings = [self.encoder.invoke(medium).embeddings for medium in request.media]
        return self.reader.invoke(StageRequest(items={{"reader": 1}}, inputs=embeddings))


app = App(name={name!r}, paths=[Listen()])
"""
DECODING = 'cornserve_encoder_decoding_items{modality="audio"}'
ENCODED = 'cornserve_encoder_items_total{modality="audio"}'
HELD = 'cornserve_transport_slab_bytes{state="held"}'
IDLE = (DECODING, HELD, 'cornserve_encoder_pending_items{modality="audio"}', "cornserve_executor_invocations_running")
"""Metrics that are 0 when no request runs."""


@pytest.fixture(scope="module")
def apps(
    cornserve: CommandLine, tiny_qwen2audio: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[str]]:
    """Two apps with the same audio encoder."""
    directory = tmp_path_factory.mktemp("apps")
    apps = ("listen", "hear")
    try:
        for app in apps:
            file = directory / f"{app}.py"
            file.write_text(APP.format(model=str(tiny_qwen2audio), name=app))
            deployed = cornserve.run("deploy", str(file), "--timeout", "100")
            assert deployed.returncode == 0, deployed.stderr
        yield apps
    finally:
        for app in apps:
            cornserve.run("delete", app)


def audio_part(content: bytes, format: str = "wav") -> Part:
    return {"type": "input_audio", "input_audio": {"data": b64encode(content).decode(), "format": format}}


def send(cornserve: CommandLine, app: str, part: Part) -> None:
    response = httpx.post(f"{cornserve.url}/v1/apps/{app}/invoke", json=body(part), timeout=100)
    assert response.status_code == 200, response.text


def body(part: Part) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": [part]}]}


def test_apps_with_the_same_audio_encoder_share_its_executors_and_batches(
    cornserve: CommandLine, apps: Sequence[str]
) -> None:
    assert encoder_users(cornserve, apps[0]) == [sorted(apps)]
    assert are_encoded_together(
        cornserve,
        apps,
        "audio",
        lambda seed: audio_part(audio_file(sound(seed, 0.2))),
        lambda app, part: send(cornserve, app, part),
    )


def test_equal_audio_is_encoded_once(cornserve: CommandLine, apps: Sequence[str]) -> None:
    samples = sound(1000, 0.5)

    def encoded(file: bytes) -> float:
        before = sum_metric(cornserve, apps[0], ENCODED)
        for app in apps:
            send(cornserve, app, audio_part(file))
        return sum_metric(cornserve, apps[0], ENCODED) - before

    assert encoded(audio_file(samples)) == 1
    assert encoded(audio_file(samples)) == 0
    assert encoded(audio_file(samples, subtype="FLOAT")) == 1, "another file"


def ten_minutes() -> bytes:
    """Returns an MP3 file, which takes half a second to decode: the frames of ten seconds again and again."""
    file = audio_file(sound(0, 10, 48_000, 2), 48_000, "MP3")
    return 59 * file[file.index(b"\xff\xfb", 4) :]  # without the first frame, which contains the duration


async def test_cancelled_audio_leaves_neither_work_nor_memory(cornserve: CommandLine, apps: Sequence[str]) -> None:
    """`benchmarks/media_cancellation.py` measures the time until all work has ended."""

    async def value(metric: str) -> float:
        return await asyncio.to_thread(sum_metric, cornserve, apps[0], metric)

    async def is_idle() -> bool:
        return not any([await value(metric) for metric in IDLE])

    async def is_decoding() -> bool:
        return await value(DECODING) > 0

    await until(is_idle)
    async with httpx.AsyncClient(base_url=cornserve.url, timeout=None) as client:
        request = asyncio.create_task(
            client.post(f"/v1/apps/{apps[0]}/invoke", json=body(audio_part(ten_minutes(), "mp3")))
        )
        await until(is_decoding)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await until(is_idle)

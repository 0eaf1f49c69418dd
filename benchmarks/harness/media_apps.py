"""Apps of encoders without language models, and long media for them."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import aiohttp
import numpy as np
import soundfile

from benchmarks.harness.slot_instance import SlotInstance
from cornserve.app.record import AppSpec
from cornserve.client import audio_part, calls
from cornserve.client.calls import ApiCall
from cornserve_tasklib.media import Modality

TIMEOUT_SECONDS = 300.0

LONG_FORMATS = {
    "WAV": (16_000, 1, {"format": "WAV"}),
    "FLAC": (16_000, 1, {"format": "FLAC"}),
    "MP3": (44_100, 2, {"format": "MP3"}),
    "OGG": (48_000, 2, {"format": "OGG", "subtype": "OPUS"}),
}
"""Sample rate, channels and soundfile's options of each format, so that ten minutes are within the gateway's limit."""


def encoder_app(name: str, model: Path, modality: Modality) -> AppSpec:
    """Returns an app that encodes media. An executor of the echo package receives the embeddings."""
    return AppSpec(
        source=f"""
from cornserve import App, Task
from cornserve_echo.stages import StageRequest, StageResult, StageTask
from cornserve_tasklib import ChatRequest, EncoderTask


class Encode(Task[ChatRequest, StageResult]):
    def post_init(self) -> None:
        self.encoder = EncoderTask(model_id={str(model.resolve())!r}, modality={modality!r})
        self.reader = StageTask(seconds={{"reader": 0}}, gpus=0, concurrency=1024)

    def invoke(self, request: ChatRequest) -> StageResult:
        embeddings = [self.encoder.invoke(medium).embeddings for medium in request.media]
        return self.reader.invoke(StageRequest(items={{"reader": 1}}, inputs=embeddings))


app = App(name={name!r}, paths=[Encode()])
"""
    )


@contextmanager
def serving_encoders(directory: Path, encoders: dict[Modality, Path]) -> Iterator[str]:
    """Serves an app for each encoder, under the name of its modality. Yields the URL."""
    with SlotInstance(directory / "instance", 8).started() as client:
        for modality, model in encoders.items():
            client.deploy(encoder_app(modality, model, modality), name=modality, timeout=TIMEOUT_SECONDS)
        yield client.url


def encode_call(modality: Modality, part: object) -> ApiCall:
    """Returns a request that encodes the medium of a part."""
    return calls.invoke(modality, {"messages": [{"role": "user", "content": [part]}]}, TIMEOUT_SECONDS)


def long_audio(seconds: float, format: str) -> bytes:
    """Returns an audio file of tones and noise."""
    sample_rate, channels, options = LONG_FORMATS[format]
    times = np.arange(round(seconds * sample_rate), dtype=np.float32)[:, None] / sample_rate
    noise = np.random.default_rng(0).normal(0, 0.02, (len(times), channels))
    samples = 0.2 * np.sin(2 * np.pi * 440 * times) + noise.astype(np.float32)
    with io.BytesIO() as file:
        soundfile.write(file, samples, sample_rate, **options)
        return file.getvalue()


def long_calls(seconds: float) -> Iterator[ApiCall]:
    """Yields requests with MP3 files that differ in their ID3 tag, so that no cache contains their embeddings."""
    audio = long_audio(seconds, "MP3")
    for number in count():
        text = f"\0{number:08}".encode()
        frame = b"TIT2" + len(text).to_bytes(4) + b"\0\0" + text
        yield encode_call("audio", audio_part(b"ID3\x03\0\0\0\0\0" + bytes([len(frame)]) + frame + audio))


class EncoderMetrics:
    """Reads the metrics of the executors of an app."""

    def __init__(self, session: aiohttp.ClientSession, endpoints: list[str]) -> None:
        self._session = session
        self._endpoints = endpoints

    async def sum(self, *metrics: str) -> float:
        """Returns the sum of the metrics, given with their labels, over the executors."""
        total = 0.0
        for endpoint in self._endpoints:
            async with self._session.get(f"http://{endpoint}/metrics") as response:
                text = await response.text()
            for metric in metrics:
                total += sum(map(float, re.findall(rf"^{re.escape(metric)} (\S+)$", text, re.MULTILINE)))
        return total


@asynccontextmanager
async def reading_metrics(url: str, app: str) -> AsyncIterator[EncoderMetrics]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/admin/v1/metrics/targets") as response:
            targets = await response.json()
        yield EncoderMetrics(
            session,
            [target["targets"][0] for target in targets if app in target["labels"].get("app", "").split(",")],
        )

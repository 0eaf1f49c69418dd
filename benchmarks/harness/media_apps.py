"""Apps of encoders without language models, and long media for them."""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import aiohttp
import av
import numpy as np
import soundfile

from benchmarks.harness.slot_instance import SlotInstance
from cornserve.app.spec import AppSource, AppSpec
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


def encoder_app(name: str, model: Path, modalities: tuple[Modality, ...]) -> AppSpec:
    """Returns an app that encodes media. An executor of the echo package receives the embeddings."""
    return AppSpec(
        source=AppSource(
            inline=f"""
from cornserve import App, Task
from cornserve_echo.stages import StageRequest, StageResult, StageTask
from cornserve_tasklib import ChatRequest, EncoderTask


class Encode(Task[ChatRequest, StageResult]):
    def post_init(self) -> None:
        self.encoder = EncoderTask(model_id={str(model.resolve())!r}, modality={modalities!r})
        self.reader = StageTask(seconds={{"reader": 0}}, gpus=0, concurrency=1024)

    def invoke(self, request: ChatRequest) -> StageResult:
        embeddings = [self.encoder.invoke(medium).embeddings for medium in request.media]
        return self.reader.invoke(StageRequest(items={{"reader": 1}}, inputs=embeddings))


app = App(name={name!r}, paths=[Encode()])
"""
        )
    )


@contextmanager
def serving_encoders(directory: Path, encoders: Mapping[tuple[Modality, ...], Path]) -> Iterator[str]:
    """Serves an app for each encoder, under the name of its first modality. Yields the URL.

    Args:
        encoders: the models by the modalities that are encoded.
    """
    with SlotInstance(directory / "instance", 8).started() as client:
        for modalities, model in encoders.items():
            app = encoder_app(modalities[0], model, modalities)
            client.deploy(app, name=modalities[0], timeout=TIMEOUT_SECONDS)
        yield client.url


def encode_call(app: str, part: object) -> ApiCall:
    """Returns a request that encodes the medium of a part."""
    return calls.invoke(app, {"messages": [{"role": "user", "content": [part]}]}, TIMEOUT_SECONDS)


def long_audio(seconds: float, format: str) -> bytes:
    """Returns an audio file of tones and noise."""
    sample_rate, channels, options = LONG_FORMATS[format]
    times = np.arange(round(seconds * sample_rate), dtype=np.float32)[:, None] / sample_rate
    noise = np.random.default_rng(0).normal(0, 0.02, (len(times), channels))
    samples = 0.2 * np.sin(2 * np.pi * 440 * times) + noise.astype(np.float32)
    with io.BytesIO() as file:
        soundfile.write(file, samples, sample_rate, **options)
        return file.getvalue()


def long_video(seconds: float) -> bytes:
    """Returns an MP4 file of 320×240 pixels and ten frames per second, in which a pattern moves."""
    picture = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    with io.BytesIO() as file:
        with av.open(file, "w", "mp4") as container:
            stream = container.add_stream("h264", 10)
            stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
            for number in range(round(seconds * 10)):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(np.roll(picture, number, 1)), "rgb24")
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return file.getvalue()


def long_video_calls(seconds: float) -> Iterator[ApiCall]:
    """Yields requests with MP4 files that differ in an unused box, so that no cache contains their embeddings."""
    video = long_video(seconds)
    for number in count():
        content = b64encode(video + (16).to_bytes(4) + b"free" + number.to_bytes(8)).decode()
        yield encode_call("image", {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{content}"}})


def long_audio_calls(seconds: float) -> Iterator[ApiCall]:
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

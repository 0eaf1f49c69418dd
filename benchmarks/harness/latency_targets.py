"""Apps with and without latency targets, in turns: CPU time of the gateway, and texts next to requests with images."""

from __future__ import annotations

import asyncio
import base64
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.instance import running_instance
from benchmarks.harness.load.apps import app_source
from benchmarks.harness.load.job import MODELS, LoadJob, Mode
from benchmarks.harness.load_runner import LoadRunner
from benchmarks.harness.media import random_image
from benchmarks.harness.processes import CoreAssignment
from benchmarks.harness.slot_instance import SlotInstance
from cornserve.app.settings import AppPolicies, LatencyTargetSettings
from cornserve.app.spec import AppSource, AppSpec
from cornserve.bench.percentiles import percentile
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve.client.calls import ApiCall

MODES: tuple[Mode, ...] = ("whole", "stream")

TARGETS = AppPolicies(targets=LatencyTargetSettings(ttft_seconds=1.0, tbt_seconds=0.1, end_to_end_seconds=5.0))

APP = "model"

IMAGES = 16

IMAGE_SIDE = 112

IN_FLIGHT = 8
"""Requests with images that are always in flight."""

RUNNING = 4
"""`max_num_seqs` of the engine: others wait."""

TEXT_RATE = 4.0
"""Texts per second."""

TEXT_TARGET = 2.0
"""Seconds until the first token."""

TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class CpuRow:
    """CPU time of the gateway per request in microseconds, as medians of the rounds.

    Args:
        noise: the largest difference between two rounds without targets, relative to their median.
    """

    mode: Mode
    concurrency: int
    without_us: float
    with_us: float
    noise: float

    @property
    def change(self) -> float:
        return self.with_us / self.without_us - 1


@dataclass(frozen=True, slots=True)
class TextRow:
    """The 50th and 99th percentiles of the time to the first token of texts, in milliseconds."""

    round: int
    texts: int
    without: tuple[float, float]
    with_targets: tuple[float, float]

    @property
    def change(self) -> float:
        """The change of the 99th percentile."""
        return self.with_targets[1] / self.without[1] - 1


def measure_cpu(cores: CoreAssignment, concurrencies: Sequence[int], rounds: int, seconds: float) -> Iterator[CpuRow]:
    """Yields a row for each mode and number of chats in flight."""
    apps = {MODELS[mode]: app_source(mode) for mode in MODES}
    runner = LoadRunner(cores, retry_seconds=0)
    with running_instance(apps, cores, ("-m", "cornserve.gateway.__main__")) as instance:
        address, processes = f"127.0.0.1:{instance.port}", (("gateway", instance.gateway),)
        with Client(f"http://{address}") as client:
            for mode in MODES:
                for concurrency in concurrencies:
                    job = LoadJob("chat", address, mode, concurrency, seconds, processes)
                    found: dict[bool, list[float]] = {False: [], True: []}
                    for _ in range(rounds):
                        for has_targets in (False, True):
                            spec = AppSpec(
                                source=AppSource(inline=apps[MODELS[mode]]),
                                policies=TARGETS if has_targets else AppPolicies(),
                            )
                            client.deploy(spec, name=MODELS[mode], timeout=TIMEOUT_SECONDS)
                            found[has_targets].append(runner.run(job).cpu_us["gateway"])
                    without = statistics.median(found[False])
                    noise = (max(found[False]) - min(found[False])) / without
                    yield CpuRow(mode, concurrency, without, statistics.median(found[True]), noise)


def measure_texts(folder: Path, model: Path, rounds: int, seconds: float) -> Iterator[TextRow]:
    """Yields a row for each round.

    Args:
        folder: for the instance. It must not exist.
        seconds: the time for which texts arrive.
    """
    instance = SlotInstance(folder, 1)
    options = {"max_model_len": 2048, "max_num_batched_tokens": 512, "max_num_seqs": RUNNING}
    given = (word for name, value in options.items() for word in ("--option", f"{name}={value}"))
    command = ("deploy", str(model), "--name", APP, *given)
    with instance.started() as client:
        instance.cornserve(*command)
        load = _MixedLoad(client)
        asyncio.run(load.run(2.0))  # Warms up.
        for number in range(1, rounds + 1):
            found = {}
            for has_targets in (False, True):
                instance.cornserve(*command, *(("--ttft", f"{TEXT_TARGET:g}") if has_targets else ()))
                found[has_targets] = sorted(1000 * each for each in asyncio.run(load.run(seconds)))
            without, with_targets = ((percentile(each, 50), percentile(each, 99)) for each in found.values())
            yield TextRow(number, len(found[False]), without, with_targets)


class _MixedLoad:
    """Sends short texts at random times, always the same ones, while requests with images are in flight."""

    def __init__(self, client: Client) -> None:
        self._address = client.address
        self._seed = 0

    async def run(self, seconds: float) -> list[float]:
        """Returns the times to the first token of the texts. Raises `RuntimeError` if a request fails.

        A response without printable characters has no first token.
        """
        loop, gaps = asyncio.get_running_loop(), random.Random(1)
        begin, samples = loop.time(), list[RequestSample]()
        async with TimedClient(self._address) as client, asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(self._send_images(client, begin + seconds))
            due = 0.0
            while (due := due + gaps.expovariate(TEXT_RATE)) < seconds:
                await asyncio.sleep(begin + due - loop.time())
                sample = RequestSample(due=loop.time(), sent=loop.time())
                samples.append(sample)
                tasks.create_task(client.run(_chat(f"text {due:.3f}", ()), sample, loop.time))
        failed = [sample.reason or sample.error for sample in samples if sample.error is not None]
        if failed:
            raise RuntimeError(f"a text failed: {failed[0]}")
        return [sample.ttft for sample in samples if sample.ttft is not None]

    async def _send_images(self, client: TimedClient, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            self._seed += IMAGES
            call = _chat("Describe.", range(self._seed, self._seed + IMAGES))
            sample = RequestSample(due=loop.time(), sent=loop.time())
            await client.run(call, sample, loop.time)
            if sample.error is not None:
                raise RuntimeError(f"a request with images failed: {sample.reason or sample.error}")


def _chat(text: str, images: Sequence[int]) -> ApiCall:
    """Returns a chat with a text and images of these seeds."""
    content: list[dict[str, object]] = [{"type": "text", "text": text}]
    for seed in images:
        image = random_image(seed, IMAGE_SIDE).data
        assert image is not None
        data = base64.b64encode(image.data).decode()
        content.append({"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}})
    options = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
    return calls.chat(APP, [{"role": "user", "content": content}], options, TIMEOUT_SECONDS, stream=True)

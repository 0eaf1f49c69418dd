"""Language models on the CPU, whole or with their encoder apart, and their simulation (V4).

The step model is profiled through the gateway: prompts alone give the seconds of a token of the prompt, and requests
that are sent together those of decode steps. A constant time before the first token is that of gateway, tokenizer and
template. An image takes the time by which it delays the first token of a prompt of the same length. Each load is
profiled before and after its measurement, because the speed of a shared machine changes within minutes.
"""

from __future__ import annotations

import asyncio
import base64
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.harness.media import random_image
from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.validation.differences import above, differences, steady_pair
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve.client.calls import ApiCall
from cornserve_planner.conversion.size_costs import non_negative_least_squares
from cornserve_planner.planning.given_plan import plan_replicas
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.measurements import LatencyColumns, SimulationMeasurements
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.registry import DEFAULT_ROUTING, routing_policy

APP = "model"

LOADS = (0.5, 0.7, 0.9)
"""Parts of the highest rate."""

TOLERANCES = {"throughput": 0.10, "tpot": 0.10, "ttft p50": 0.15, "ttft p90": 0.25}

TOGETHER = (1, 2, 4, 8)
"""The requests that are sent together in the profile."""

PROMPTS = (16, 128, 384)
"""About the tokens of the profile's prompts."""

OUTPUT = 32

IMAGE_SIDE = 112

MAX_LENGTH = 1024

MAX_STEP_TOKENS = 1024

MAX_SEQUENCES = 32

LEAST_SECONDS = 1e-5
"""The least time of a step and of an image."""

TIMEOUT_SECONDS = 300.0

GATEWAYS = 64
"""Simulated gateways: the time before the first token delays requests, but they do not wait for each other."""

MODEL = """
format: cornserve-planner/model
version: 1
name: engine
components: {encoder: {}, llm: {after: [encoder]}}
options:
  encoder: {components: [encoder], gpu: L4}
  llm: {components: [llm], gpu: L4}
paths: [[encoder, llm]]
"""

WORKLOAD = """
format: cornserve-planner/workload
version: 1
rate: 1
types: {{request: {{components: [{components}], share: 1}}}}
"""

PROFILE = """
format: cornserve-planner/profile
version: 1
model: engine
options:
  - option: encoder
    gpu: L4
    throughput: [{{rate: {{value: {images}, unit: requests/s, tag: measured, source: a benchmark}}}}]
  - option: llm
    gpu: L4
    throughput: [{{rate: {{value: 1, unit: requests/s, tag: measured, source: a benchmark}}}}]
    step:
      fixed: {fixed}
      per_token: {per_token}
      per_sequence: {per_sequence}
      per_context_token: {per_context}
      max_num_seqs: {sequences}
      max_num_batched_tokens: {tokens}
      cache_tokens: 1000000
      tag: measured
      source: a benchmark
"""

Figures = dict[str, float]
"""Requests per second as `throughput`, and `tpot`, `ttft p50` and `ttft p90` in seconds."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """A load in simulation and measured.

    Args:
        load: relative to the highest rate.
        differences: those of the simulated figures from the measured ones, relative to them.
        noise: those between two measurements.
        missed: the tolerances that are missed.
        noisy: the figures whose noise is above the tolerance: the comparison shows nothing about them.
    """

    model: str
    load: float
    requests: int
    measured: Figures
    simulated: Figures
    differences: Figures
    noise: Figures
    missed: list[str]
    noisy: list[str]


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """The measured seconds of an engine.

    Args:
        delay: before the first token, besides that of steps and of images.
        fixed, per_token, per_sequence, per_context: the parts of a step.
        image: the time of an image in the encoder; 0 without one.
    """

    delay: float
    fixed: float
    per_token: float
    per_sequence: float
    per_context: float
    image: float = 0.0

    def first_token(self, prompt: int) -> float:
        """Returns the seconds until the first token of a prompt alone, without image."""
        return self.delay + self.fixed + prompt * (self.per_token + self.per_context) + self.per_sequence


@dataclass(slots=True)
class ProfiledTimes:
    """The measurements of a profile.

    Args:
        parts, seconds: the numbers of delays, steps, tokens, sequences and tokens of context in a time, and the time.
        images: the tokens of a prompt with an image, and the seconds until its first token.
    """

    parts: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    images: list[tuple[int, float]] = field(default_factory=list)

    def add(self, parts: list[float], seconds: float) -> None:
        self.parts.append(parts)
        self.seconds.append(seconds)

    def fit(self) -> EngineProfile:
        """Returns the parts of a step whose sums differ least from the times, relative to them."""
        matrix, measured = np.array(self.parts, dtype=float), np.array(self.seconds)
        delay, *step = non_negative_least_squares(matrix / measured[:, None], np.ones((len(measured), 1)))[:, 0]
        fixed, *others = map(float, step)
        profile = EngineProfile(float(delay), max(LEAST_SECONDS, fixed), *others)
        delays = [seconds - profile.first_token(prompt) for prompt, seconds in self.images]
        return replace(profile, image=max(LEAST_SECONDS, statistics.median(delays))) if delays else profile


class ProfiledLoad(NamedTuple):
    """The measurements of a load, and the profile of the times before and after it."""

    samples: Sequence[RequestSample]
    profile: EngineProfile


@dataclass(frozen=True, slots=True)
class ProfiledChat:
    """A chat of the profile or of the load: about the tokens of its text, and its output tokens."""

    text: int
    output: int
    has_image: bool

    def call(self, seed: int) -> ApiCall:
        rng = random.Random(seed)
        text = " ".join(str(rng.randrange(10)) for _ in range(self.text // 2))  # A digit and a space are two tokens.
        content: list[dict[str, object]] = [{"type": "text", "text": text}]
        if self.has_image:
            image = random_image(seed, IMAGE_SIDE).data
            assert image is not None
            data = base64.b64encode(image.data).decode()
            content.insert(0, {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}})
        options = {
            "max_tokens": self.output,
            "temperature": 0,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }
        return calls.chat(APP, [{"role": "user", "content": content}], options, TIMEOUT_SECONDS, stream=True)


def compare_engines(
    folder: Path, model: Path, *, is_multimodal: bool, seconds: float, most: int, quick: bool
) -> Iterator[EngineRow]:
    """Yields a row for each load.

    Args:
        folder: for the instance. It must not exist.
        seconds: the duration of each load.
        most: the most measurements of a load, of which the first pair with little noise counts.
    """
    instance = SlotInstance(folder, 2)
    with instance.started() as client:
        options = {
            "max_model_len": MAX_LENGTH,
            "max_num_batched_tokens": MAX_STEP_TOKENS,
            "max_num_seqs": MAX_SEQUENCES,
            "kv_cache_memory_bytes": 256 << 20,
        }
        path = ("--share", "e-l=1") if is_multimodal else ()
        given = (word for name, value in options.items() for word in ("--option", f"{name}={value}"))
        instance.cornserve("deploy", str(model), "--name", APP, *given, *path)
        load = EngineLoad(client, is_multimodal=is_multimodal)
        requests = load.requests(40 if quick else 400)
        asyncio.run(load.send(requests[:4], [0.0] * 4))  # Warms up.
        rate = load.highest_rate(requests[: 12 if quick else 60])
        for part in LOADS[:1] if quick else LOADS:
            yield load.compare(model.name, part, rate, requests, seconds=4.0 if quick else seconds, most=most)


class EngineLoad:
    """Sends chats to the model, and measures them."""

    def __init__(self, client: Client, *, is_multimodal: bool) -> None:
        self._client = client
        self._is_multimodal = is_multimodal
        self._seed = 0

    def requests(self, count: int) -> list[ProfiledChat]:
        """Returns requests of different sizes, always the same ones."""
        rng = random.Random(3)
        return [ProfiledChat(rng.randrange(20, 200), rng.randrange(8, 48), self._is_multimodal) for _ in range(count)]

    async def send(self, requests: Sequence[ProfiledChat], arrivals: Sequence[float]) -> list[RequestSample]:
        """Sends requests at their times, and returns their measurements. Raises `RuntimeError` if one fails."""
        loop = asyncio.get_running_loop()
        samples = [RequestSample(due=arrival, sent=arrival) for arrival in arrivals]
        sent = [request.call(self._seed + number) for number, request in enumerate(requests)]
        self._seed += len(requests)
        begin = loop.time() + 0.05
        async with TimedClient(self._client.address) as timed, asyncio.TaskGroup() as tasks:
            for sample, call in zip(samples, sent, strict=True):
                await asyncio.sleep(begin + sample.due - loop.time())
                tasks.create_task(timed.run(call, sample, lambda: loop.time() - begin))
        for sample in samples:
            if sample.error is not None:
                raise RuntimeError(f"a request failed: {sample.reason or sample.error}")
        return samples

    def profiled(self, requests: Sequence[ProfiledChat], arrivals: Sequence[float]) -> ProfiledLoad:
        """Measures the seconds of steps and images, the load, and the seconds again."""
        times = ProfiledTimes()
        self._profile(times)
        samples = asyncio.run(self.send(requests, arrivals))
        self._profile(times)
        return ProfiledLoad(samples, times.fit())

    def _profile(self, times: ProfiledTimes) -> None:
        for prompt in PROMPTS:
            for together in TOGETHER:
                samples = self._together(ProfiledChat(prompt, OUTPUT, False), together)
                tokens = samples[0].prompt_tokens
                least = min(sample.tpot or 0.0 for sample in samples)
                times.add([0, 1, together, together, together * (tokens + OUTPUT / 2)], least)
                if together == 1:
                    times.add([1, 1, tokens, 1, tokens], samples[0].ttft or 0.0)
        if self._is_multimodal:
            for _ in range(3):
                (sample,) = self._together(ProfiledChat(PROMPTS[0], 2, True), 1)
                times.images.append((sample.prompt_tokens, sample.ttft or 0.0))

    def _together(self, request: ProfiledChat, count: int) -> list[RequestSample]:
        return asyncio.run(self.send([request] * count, [0.0] * count))

    def highest_rate(self, requests: Sequence[ProfiledChat]) -> float:
        """Returns the requests per second if all are sent at once."""
        started = time.monotonic()
        asyncio.run(self.send(requests, [0.0] * len(requests)))
        return len(requests) / (time.monotonic() - started)

    def compare(
        self,
        model: str,
        load: float,
        rate: float,
        requests: Sequence[ProfiledChat],
        seconds: float,
        most: int,
    ) -> EngineRow:
        """Measures a load at least twice, at most `most` times, and simulates a measurement with little noise."""
        gaps = random.Random(1)
        count = max(4, min(len(requests), round(load * rate * seconds)))
        arrivals = [*accumulate(gaps.expovariate(load * rate) for _ in range(count))]
        before, last = steady_pair(
            lambda: self.profiled(requests[:count], arrivals), _measured_figures, TOLERANCES, most
        )
        first, measured = _measured_figures(before), _measured_figures(last)
        simulated = simulate_engine(last.profile, last.samples, has_encoder=self._is_multimodal)
        found, noise = differences(simulated, measured), differences(first, measured)
        noisy = above(noise, TOLERANCES)
        return EngineRow(
            model=model,
            load=load,
            requests=count,
            measured=measured,
            simulated=simulated,
            differences=found,
            noise=noise,
            missed=[name for name in above(found, TOLERANCES) if name not in noisy],
            noisy=noisy,
        )


def simulate_engine(profile: EngineProfile, samples: Sequence[RequestSample], *, has_encoder: bool) -> Figures:
    """Returns the figures of the same requests in a simulation. Their prompts contain the tokens of images."""
    components = "encoder, llm" if has_encoder else "llm"
    with TemporaryDirectory() as folder:
        texts = {
            "model.yaml": MODEL,
            "workload.yaml": WORKLOAD.format(components=components),
            "profile.yaml": PROFILE.format(
                images=1 / profile.image if profile.image else 1.0,
                fixed=profile.fixed,
                per_token=profile.per_token,
                per_sequence=profile.per_sequence,
                per_context=profile.per_context,
                sequences=MAX_SEQUENCES,
                tokens=MAX_STEP_TOKENS,
            ),
        }
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        model, workload, file = (Path(folder) / name for name in texts)
        plan = plan_replicas(
            PlanRequest(str(model), workload=workload, profile=file),
            {"encoder": 1, "llm": 1} if has_encoder else {"llm": 1},
        )
        models = executor_models(plan, ModelProfile.read(file))
    measurements = SimulationMeasurements()
    settings = ServingSettings(gateways=GATEWAYS, gateway_seconds=profile.delay)
    simulation = ServingSimulation(plan, models, routing_policy(DEFAULT_ROUTING), settings, measurements)
    measurements.events = simulation.events
    simulation.run(
        SimulatedRequest(f"request {number}", each.due, "request", each.prompt_tokens, 0, each.tokens)
        for number, each in enumerate(samples)
    )
    ((_, columns),) = measurements.latencies.items()
    return _figures(len(samples) / measurements.end, columns["tbt"], columns["ttft"])


def _measured_figures(load: ProfiledLoad) -> Figures:
    samples = load.samples
    tpot, ttft = LatencyColumns(), LatencyColumns()
    for sample in samples:
        if sample.ttft is not None:
            ttft.add(sample.due, sample.ttft)
        if sample.tpot is not None:
            tpot.add(sample.due, sample.tpot)
    return _figures(len(samples) / max(sample.ended for sample in samples), tpot, ttft)


def _figures(throughput: float, tpot: LatencyColumns, ttft: LatencyColumns) -> Figures:
    return {
        "throughput": throughput,
        "tpot": statistics.fmean(tpot.seconds),
        "ttft p50": float(np.percentile(ttft.seconds, 50)),
        "ttft p90": float(np.percentile(ttft.seconds, 90)),
    }

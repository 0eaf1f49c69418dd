"""Concurrent speeches of Qwen3-Omni and Qwen2.5-Omni, with and without CUDA graphs, and the share of the vocoders."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, Protocol
from unittest.mock import patch

import torch
from transformers.utils import logging

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.differences import relative_difference
from benchmarks.gpu_check.random_speech import RandomSpeech, random_qwen3_omni, random_qwen25_omni
from benchmarks.harness.running import running
from cornserve.concurrency import gather_all
from cornserve.task import TensorStream
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.talker.engine import TalkerEngine
from cornserve_executors.talker.graphs import GraphedFunction
from cornserve_executors.talker.prompt import ThinkerPrompt
from cornserve_executors.talker.spoken_text import SpokenPart
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.spoken_prompt import SpokenPrompt
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenChunk, TalkerOptions, TalkerRequest

CHAT = "What is corn?"
TEXT = b"A plant from America."
MAX_TOKENS = 512

COMPARED_SPEECHES = 4
COMPARED_SECONDS = 0.5

CHUNK_SIZES = 5
"""The number of a speech's chunks up to the first of the largest size."""

MAX_DIFFERENCE = 0.05
"""The bound of the difference between graphs and their functions, relative to the norm. Both may round differently."""
MIN_EQUAL_CODES = 0.9
"""The bound of the share of equal codes. A code that rounding changes also changes the following ones of its frame."""


class _Build(Protocol):
    def __call__(self, check: Check, *, enforce_eager: bool) -> RandomSpeech: ...


@dataclass(frozen=True, slots=True)
class _Case:
    """Speeches of one model."""

    build: _Build
    enforce_eager: bool
    concurrency: Sequence[int]
    seconds: float
    """The duration of a speech."""


# The vocoder of a Qwen2.5-Omni takes longer. Without CUDA graphs, all take longer: these cases are the last ones.
FULL = (
    _Case(random_qwen3_omni, False, (1, 8, 32), 4),
    _Case(random_qwen25_omni, False, (1, 8), 2),
    _Case(random_qwen3_omni, True, (1, 8), 1),
    _Case(random_qwen25_omni, True, (1, 8), 1),
)
TINY = tuple(
    _Case(build, enforce_eager, (1, 2), 0.5)
    for enforce_eager in (False, True)
    for build in (random_qwen3_omni, random_qwen25_omni)
)


@dataclass(frozen=True, slots=True)
class _Speech:
    seconds: float
    first_ms: float
    """The time to the first samples."""
    audio_seconds: float
    codes: torch.Tensor
    """The shape is [groups, frames]."""


@dataclass(frozen=True, slots=True)
class _Round:
    seconds: float
    speeches: Sequence[_Speech]

    def equal_to(self, other: _Round) -> int:
        """Returns the number of speeches with the codes of another round."""
        pairs = zip(self.speeches, other.speeches, strict=True)
        return sum(speech.codes.equal(expected.codes) for speech, expected in pairs)

    @property
    def frames(self) -> int:
        return sum(speech.codes.shape[1] for speech in self.speeches)


async def run(check: Check) -> None:
    logging.set_verbosity_error()
    problems: list[str] = []
    for case in TINY if check.is_tiny else FULL:
        torch.manual_seed(0)
        problems += await _SpeechMeasurement(check, case).run()
        check.free_memory()
    if problems:
        raise RuntimeError("; ".join(problems))


@dataclass(slots=True)
class _Comparison:
    """The results of graphs, compared with those of their functions for the same inputs."""

    codes: int = 0
    equal: int = 0
    """The number of codes that are equal."""
    differences: list[float] = field(default_factory=list)
    """The differences of all other results, in rows whose codes are equal."""

    @contextmanager
    def compare(self) -> Iterator[None]:
        """Compares all calls in a block."""
        replay = GraphedFunction.__call__

        def call(graphed: GraphedFunction, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            results = replay(graphed, *inputs)
            self._add(results, graphed.function(*inputs))
            return results

        with patch.object(GraphedFunction, "__call__", call):
            yield

    def _add(self, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
        pairs = list(zip(results, expected, strict=True))
        rows: Any = slice(None)
        for found, wanted in pairs:
            if not found.is_floating_point():
                is_equal = (found == wanted).reshape(len(found), -1)
                self.codes += is_equal.numel()
                self.equal += int(is_equal.sum())
                rows = is_equal.all(1)
        for found, wanted in pairs:
            if found.is_floating_point() and found[rows].numel():
                self.differences.append(relative_difference(found[rows], wanted[rows]))

    @property
    def is_close(self) -> bool:
        differences_are_small = all(difference <= MAX_DIFFERENCE for difference in self.differences)
        return differences_are_small and self.equal >= MIN_EQUAL_CODES * self.codes


class _SpeechMeasurement:
    """The speeches of one model."""

    def __init__(self, check: Check, case: _Case) -> None:
        self._check = check
        self._case = case
        started = time.perf_counter()
        check.reset_peak_memory()
        self._speech = case.build(check, enforce_eager=case.enforce_eager)
        made = {"seconds": time.perf_counter() - started, "peak_gib": check.peak_gib}
        check.report.add(self._name("made"), **made)

    def _name(self, case: str) -> str:
        return f"{self._speech.name}: {case}{', enforce_eager' if self._case.enforce_eager else ''}"

    async def run(self) -> list[str]:
        """Returns the problems: cases without CUDA graphs, and graphs whose results differ from their functions'."""
        device = DeviceThread()
        engine = self._engine(self._case.seconds, device)
        problems: list[str] = []
        seconds = 0.0
        try:
            async with running(engine):
                started = time.perf_counter()
                await engine.warm_up()
                warm_up = {"seconds": time.perf_counter() - started, "cuda_graphs": engine.captured_graphs}
                self._check.report.add(self._name("warm-up"), **warm_up)
                for count in self._case.concurrency:
                    case = self._name(f"{count} speeches")
                    if self._check.report.can_start(case, 4 * seconds):
                        figures = await self._measure(engine, count)
                        seconds = figures["round_s"]
                        self._check.report.add(case, **figures)
                case = self._name("a large chunk")
                if self._check.report.can_start(case):
                    self._check.report.add(case, **await device.run(self._measure_chunk))
        finally:
            engine.shutdown()
        if self._check.device == "cuda" and not self._case.enforce_eager:
            talker = engine.captured_graphs - self._speech.vocoder.captured_graphs
            for part, graphs in (("talker", talker), ("vocoder", self._speech.vocoder.captured_graphs)):
                if not graphs:
                    problems.append(f"{self._speech.name}: no CUDA graph of the {part} was captured")
        return problems if self._case.enforce_eager else problems + await self._compare()

    def _engine(self, seconds: float, device: DeviceThread) -> TalkerEngine:
        options = TalkerOptions(
            max_batch_speeches=max(*self._case.concurrency, COMPARED_SPEECHES),
            max_tokens=MAX_TOKENS,
            max_seconds=seconds,
            enforce_eager=self._case.enforce_eager,
        )
        return TalkerEngine(self._speech.model, options, TalkerStats(), device)

    async def _measure(self, engine: TalkerEngine, count: int) -> dict[str, Any]:
        """Returns the figures of a round of speeches. Without `enforce_eager`, it follows one that captures graphs."""
        self._check.reset_peak_memory()
        vocoder, first = self._speech.vocoder, None
        if not self._case.enforce_eager:
            first = await self._round(engine, count)
        seconds, chunks = vocoder.seconds, vocoder.chunks
        measured = await self._round(engine, count)
        seconds, chunks = vocoder.seconds - seconds, vocoder.chunks - chunks
        speeches = measured.speeches
        figures = {
            "frames_per_s": measured.frames / measured.seconds,
            "audio_s_per_s": sum(speech.audio_seconds for speech in speeches) / measured.seconds,
            "real_time_factor": mean(speech.seconds / speech.audio_seconds for speech in speeches),
            "step_ms": 1e3 * (measured.seconds - seconds) / max(speech.codes.shape[1] for speech in speeches),
            "chunk_ms": 1e3 * seconds / chunks,
            "first_audio_ms": median(speech.first_ms for speech in speeches),
            "last_first_audio_ms": max(speech.first_ms for speech in speeches),
            "round_s": measured.seconds,
            "peak_gib": self._check.peak_gib,
            "cuda_graphs": engine.captured_graphs,
        }
        if first is not None:
            figures["first_round_s"] = first.seconds
            figures["codes_equal_when_repeated"] = f"{measured.equal_to(first)} of {count}"
        return figures

    def _measure_chunk(self) -> dict[str, Any]:
        """Returns the figures of a chunk of the largest size, which most chunks of a long speech have."""
        vocoder = self._speech.vocoder
        state = vocoder.start(self._speech.model.voices[0], seed=0)
        frames, decoded, seconds = 0, 0, 0.0
        for _ in range(1 if self._check.is_tiny else CHUNK_SIZES):
            decoded += frames
            frames = vocoder.chunk_frames(decoded)
            codes = torch.zeros(vocoder.groups, frames, dtype=torch.int64, device=self._check.device)
            started = time.perf_counter()
            vocoder.decode(state, codes)
            seconds = time.perf_counter() - started
        audio = frames * vocoder.frame_samples / SAMPLE_RATE
        return {"chunk_frames": frames, "chunk_ms": 1e3 * seconds, "audio_s_per_s": audio / seconds}

    async def _compare(self) -> list[str]:
        """Returns a problem if the results of graphs differ from those of their functions for the same inputs."""
        case = self._name("graphs and their functions")
        if not self._check.report.can_start(case):
            return []
        engine, comparison = self._engine(COMPARED_SECONDS, DeviceThread()), _Comparison()
        try:
            async with running(engine):
                with comparison.compare():
                    await self._round(engine, COMPARED_SPEECHES)
        finally:
            engine.shutdown()
        self._check.report.add(
            case,
            equal_codes=f"{comparison.equal} of {comparison.codes}",
            largest_difference=max(comparison.differences),
            bound=MAX_DIFFERENCE,
        )
        return [] if comparison.is_close else [f"{case}: the results differ"]

    async def _round(self, engine: TalkerEngine, count: int) -> _Round:
        started = time.perf_counter()
        speeches = await gather_all(self._speak(engine, seed) for seed in range(count))
        return _Round(time.perf_counter() - started, speeches)

    async def _speak(self, engine: TalkerEngine, seed: int) -> _Speech:
        started = time.perf_counter()
        arrivals: list[float] = []

        async def send(chunk: SpokenChunk) -> None:
            arrivals.append(time.perf_counter())

        if self._speech.reads_states:
            request = TalkerRequest(states=TensorStream(), seed=seed)
            response = await engine.speak(request, str(seed), send, self._parts(), self._prompt())
        else:
            request = TalkerRequest(user_messages=[CHAT], token_ids=list(TEXT), seed=seed)
            response = await engine.speak(request, str(seed), send)
        seconds = time.perf_counter() - started
        assert response.finish_reason == "length", "the speech has ended before its limit"
        codes = self._speech.vocoder.codes(seed)
        return _Speech(seconds, 1e3 * (arrivals[0] - started), response.seconds, codes)

    def _prompt(self) -> ThinkerPrompt:
        tokens = list(CHAT.encode())
        return ThinkerPrompt(SpokenPrompt(tokens=tokens), self._states(len(tokens)))

    async def _parts(self) -> AsyncIterator[SpokenPart]:
        yield SpokenPart(list(TEXT), self._states(len(TEXT)).unbind())

    def _states(self, tokens: int) -> torch.Tensor:
        """Returns hidden states of the thinker, of the shape [tokens, width]."""
        width = self._speech.model.embeddings.shape[1]
        return torch.randn(tokens, width, generator=torch.Generator().manual_seed(tokens))

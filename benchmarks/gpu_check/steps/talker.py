"""Concurrent speeches of Qwen3-Omni and Qwen2.5-Omni, with and without CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import torch
from transformers.utils import logging

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.random_speech import RandomSpeech, random_qwen3_omni, random_qwen25_omni
from benchmarks.gpu_check.running import running
from cornserve.concurrency import gather_all
from cornserve.task import TensorStream
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.talker.engine import TalkerEngine
from cornserve_executors.talker.prompt import ThinkerPrompt
from cornserve_executors.talker.spoken_text import SpokenPart
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.spoken_prompt import SpokenPrompt
from cornserve_tasklib.talker import SpokenChunk, TalkerOptions, TalkerRequest

CHAT = "What is corn?"
TEXT = b"A plant from America."
MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class _SpeechSizes:
    concurrency: Sequence[int]
    seconds: Sequence[float]
    """The duration of a speech of each model. The vocoder of a Qwen2.5-Omni takes longer."""


FULL = _SpeechSizes((1, 8, 32), (4, 2))
TINY = _SpeechSizes((1, 2), (0.5, 0.5))


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
    sizes = TINY if check.is_tiny else FULL
    logging.set_verbosity_error()
    torch.manual_seed(0)
    problems: list[str] = []
    for build, seconds in zip((random_qwen3_omni, random_qwen25_omni), sizes.seconds, strict=True):
        problems += await _SpeechMeasurement(check, sizes.concurrency, build, seconds).run()
        check.free_memory()
    if problems:
        raise RuntimeError("; ".join(problems))


class _SpeechMeasurement:
    """The speeches of one model."""

    def __init__(
        self, check: Check, concurrency: Sequence[int], build: Callable[[Check], RandomSpeech], seconds: float
    ) -> None:
        self._check = check
        self._concurrency = concurrency
        self._seconds = seconds
        started = time.perf_counter()
        check.reset_peak_memory()
        self._speech = build(check)
        self._rounds: dict[int, _Round] = {}
        """Rounds with CUDA graphs, by the number of speeches."""
        self._repeatable: set[int] = set()
        """The numbers of speeches whose codes were equal in a second round with CUDA graphs."""
        check.report.add(f"{self._speech.name}: made", seconds=time.perf_counter() - started, peak_gib=check.peak_gib)

    async def run(self) -> list[str]:
        """Returns the problems: cases without CUDA graphs, and cases whose codes depend on CUDA graphs."""
        problems = await self._run(enforce_eager=False)
        self._check.free_memory()
        return problems + await self._run(enforce_eager=True)

    async def _run(self, *, enforce_eager: bool) -> list[str]:
        options = TalkerOptions(
            max_batch_speeches=max(self._concurrency),
            max_tokens=MAX_TOKENS,
            max_seconds=self._seconds,
            enforce_eager=enforce_eager,
        )
        engine = TalkerEngine(self._speech.model, options, TalkerStats(), DeviceThread())
        problems: list[str] = []
        seconds = 0.0
        try:
            async with running(engine):
                await engine.warm_up()
                for count in self._concurrency:
                    case = f"{self._speech.name}: {count} speeches{', enforce_eager' if enforce_eager else ''}"
                    if not self._check.report.can_start(case, 4 * seconds):
                        continue
                    self._check.reset_peak_memory()
                    first = await self._round(engine, count)  # Captures CUDA graphs.
                    measured = await self._round(engine, count)
                    seconds = measured.seconds
                    figures = self._figures(first, measured)
                    figures["cuda_graphs"] = engine.captured_graphs
                    if enforce_eager:
                        problems += self._compare(case, count, measured, figures)
                    else:
                        self._rounds[count] = measured
                        if measured.equal_to(first) == count:
                            self._repeatable.add(count)
                        if self._check.device == "cuda" and not engine.captured_graphs:
                            problems.append(f"{case}: no CUDA graph was captured")
                    self._check.report.add(case, **figures)
        finally:
            engine.shutdown()
        return problems

    def _compare(self, case: str, count: int, measured: _Round, figures: dict[str, Any]) -> list[str]:
        """Adds the number of speeches with the codes of the round with CUDA graphs. Returns a problem if they differ
        although they are repeatable."""
        if count not in self._rounds:
            return []
        equal = measured.equal_to(self._rounds[count])
        figures["codes_equal_to_graphs"] = f"{equal} of {count}"
        differ = equal < count and count in self._repeatable
        return [f"{case}: the codes with and without CUDA graphs differ"] if differ else []

    def _figures(self, first: _Round, measured: _Round) -> dict[str, Any]:
        speeches = measured.speeches
        return {
            "frames_per_s": measured.frames / measured.seconds,
            "audio_s_per_s": sum(speech.audio_seconds for speech in speeches) / measured.seconds,
            "real_time_factor": mean(speech.seconds / speech.audio_seconds for speech in speeches),
            "first_audio_ms": median(speech.first_ms for speech in speeches),
            "last_first_audio_ms": max(speech.first_ms for speech in speeches),
            "round_s": measured.seconds,
            "first_round_s": first.seconds,
            "codes_equal_when_repeated": f"{measured.equal_to(first)} of {len(speeches)}",
            "peak_gib": self._check.peak_gib,
        }

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

"""Invocations over the executor's contract: one line that carries all of them, as the gateway's does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic_core import from_json

from benchmarks.harness.load.job import ANSWER, PACE_SECONDS, WORDS, Job
from benchmarks.harness.load.tally import Tally
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import CALLER
from cornserve_echo import EchoRequest


@asynccontextmanager
async def invoking(job: Job, tally: Tally) -> AsyncIterator[None]:
    """Keeps `job.concurrency` invocations in flight."""
    calls = _Calls(job, tally)
    await calls.begin()
    try:
        yield
    finally:
        calls.stop()


@dataclass(slots=True)
class _Progress:
    sent: float
    first: float = 0.0
    chunks: int = 0


class _Calls:
    """The invocations in flight."""

    def __init__(self, job: Job, tally: Tally) -> None:
        self._address = job.address
        self._concurrency = job.concurrency
        self._tally = tally
        self._chunks = 0 if job.mode == "whole" else len(WORDS)
        outputs = ["words"] if self._chunks else []
        request = EchoRequest(text=ANSWER, seconds=PACE_SECONDS * len(WORDS) if job.mode == "paced" else 0)
        self._start = pb.Start(
            request_id="benchmark",
            request=request.model_dump_json(exclude_defaults=True).encode(),
            outputs=outputs,
        )
        self._flying: dict[int, _Progress] = {}
        self._next = 0
        self._line = MessageConnection(CALLER, self._take)

    async def begin(self) -> None:
        await self._line.connect(self._address)
        for _ in range(self._concurrency):
            self._tally.joined()
            self._send()

    def stop(self) -> None:
        self._line.abort("the measurement is over")

    def _take(self, event: pb.Event | None) -> None:
        if event is None:
            return
        if event.HasField("end"):
            self._on_end(self._flying.pop(event.call), event.end)
        else:
            self._on_chunk(self._flying[event.call])

    def _send(self) -> None:
        self._next += 1
        self._flying[self._next] = _Progress(time.perf_counter())
        self._line.send(pb.Command(call=self._next, start=self._start))

    def _on_chunk(self, progress: _Progress) -> None:
        if not progress.chunks:
            progress.first = time.perf_counter()
        progress.chunks += 1

    def _on_end(self, progress: _Progress, end: pb.End) -> None:
        self._tally.answered(progress.sent, progress.first or time.perf_counter(), self._problem(progress, end))
        if not self._tally.stopped:
            self._send()

    def _problem(self, progress: _Progress, end: pb.End) -> str | None:
        if end.code != pb.CODE_OK:
            return f"{pb.Code.Name(end.code)}: {end.message}"
        if progress.chunks != self._chunks:
            return f"{progress.chunks} chunks instead of {self._chunks}"
        text = from_json(end.values)["text"]
        return None if text == ANSWER else f"another answer: {text!r}"

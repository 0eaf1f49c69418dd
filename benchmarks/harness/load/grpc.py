"""Invocations over the executor's contract: one stream that carries all of them, as the gateway's does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from pydantic_core import from_json

from benchmarks.harness.load.job import ANSWER, PACE_SECONDS, WORDS, Job
from benchmarks.harness.load.tally import Tally
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_echo import EchoRequest


@asynccontextmanager
async def invoking(job: Job, tally: Tally) -> AsyncIterator[None]:
    """Keeps `job.concurrency` invocations in flight."""
    async with grpc.aio.insecure_channel(job.address) as channel:
        stream = executor_pb2_grpc.ExecutorStub(channel).Invoke()
        calls = _Calls(job, tally)
        tasks = [asyncio.create_task(calls.write(stream)), asyncio.create_task(calls.read(stream))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _Progress:
    sent: float
    first: float = 0.0
    chunks: int = 0


class _Calls:
    """The invocations in flight. As the gateway's, commands that gather while a frame is written leave together."""

    def __init__(self, job: Job, tally: Tally) -> None:
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
        self._commands: list[pb.Command] = []
        self._filled = asyncio.Event()
        self._next = 0
        for _ in range(job.concurrency):
            tally.joined()
            self._send()

    async def write(self, stream: grpc.aio.StreamStreamCall[pb.InvokeRequest, pb.InvokeResponse]) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            commands, self._commands = self._commands, []
            await stream.write(pb.InvokeRequest(commands=commands))

    async def read(self, stream: grpc.aio.StreamStreamCall[pb.InvokeRequest, pb.InvokeResponse]) -> None:
        async for frame in stream:
            for event in frame.events:
                if event.HasField("end"):
                    self._on_end(self._flying.pop(event.call), event.end)
                else:
                    self._on_chunk(self._flying[event.call])

    def _send(self) -> None:
        self._next += 1
        self._flying[self._next] = _Progress(time.perf_counter())
        self._commands.append(pb.Command(call=self._next, start=self._start))
        self._filled.set()

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

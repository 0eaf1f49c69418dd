"""A load of invocations over one connection of the executor contract, as the gateway has it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic_core import from_json

from benchmarks.harness.load.job import PACE_SECONDS, RESPONSE_TEXT, WORDS, LoadJob
from benchmarks.harness.load.measurement import Measurement
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.invocations import CALLER
from cornserve_echo import EchoRequest


@asynccontextmanager
async def invocation_load(job: LoadJob, measurement: Measurement) -> AsyncIterator[None]:
    """Keeps `job.concurrency` invocations in flight."""
    load = _InvocationLoad(job, measurement)
    await load.start()
    try:
        yield
    finally:
        load.stop()


@dataclass(slots=True)
class _InvocationProgress:
    sent: float
    first_chunk: float = 0.0
    chunks: int = 0


class _InvocationLoad:
    def __init__(self, job: LoadJob, measurement: Measurement) -> None:
        assert job.secret is not None, "invocations need the instance's secret"
        self._address, self._credentials = job.address, ConnectionCredentials.load(job.secret)
        self._concurrency = job.concurrency
        self._measurement = measurement
        self._chunks = 0 if job.mode == "whole" else len(WORDS)
        outputs = ["words"] if self._chunks else []
        request = EchoRequest(text=RESPONSE_TEXT, seconds=PACE_SECONDS * len(WORDS) if job.mode == "paced" else 0)
        self._start_message = pb.Start(
            request_id="benchmark",
            request=request.model_dump_json(exclude_defaults=True).encode(),
            outputs=outputs,
        )
        self._in_flight: dict[int, _InvocationProgress] = {}
        self._last_call = 0
        self._connection = MessageConnection(CALLER, self._on_event)

    async def start(self) -> None:
        await self._connection.connect(self._address, self._credentials)
        for _ in range(self._concurrency):
            self._measurement.add_connection()
            self._send()

    def stop(self) -> None:
        self._connection.abort("the measurement has ended")

    def _on_event(self, event: pb.Event | None) -> None:
        if event is None:
            return
        if event.HasField("end"):
            self._on_end(self._in_flight.pop(event.call), event.end)
        else:
            self._on_chunk(self._in_flight[event.call])

    def _send(self) -> None:
        self._last_call += 1
        self._in_flight[self._last_call] = _InvocationProgress(time.perf_counter())
        self._start_message.invocation = self._last_call  # each attempt of an invocation may run once
        self._connection.send(pb.Command(call=self._last_call, start=self._start_message))

    def _on_chunk(self, progress: _InvocationProgress) -> None:
        if not progress.chunks:
            progress.first_chunk = time.perf_counter()
        progress.chunks += 1

    def _on_end(self, progress: _InvocationProgress, end: pb.End) -> None:
        first_chunk = progress.first_chunk or time.perf_counter()
        self._measurement.record_response(progress.sent, first_chunk, self._problem(progress, end))
        if not self._measurement.stopped:
            self._send()

    def _problem(self, progress: _InvocationProgress, end: pb.End) -> str | None:
        if end.code != pb.CODE_OK:
            return f"{pb.Code.Name(end.code)}: {end.message}"
        if progress.chunks != self._chunks:
            return f"{progress.chunks} chunks instead of {self._chunks}"
        text = from_json(end.values)["text"]
        return None if text == RESPONSE_TEXT else f"unexpected response: {text!r}"

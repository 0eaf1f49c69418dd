"""A load of chats over HTTP/1.1 with one keep-alive connection per request in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import httptools
from pydantic_core import from_json, to_json

from benchmarks.harness.load.job import MODELS, RESPONSE_TEXT, WORDS, LoadJob, Mode
from benchmarks.harness.load.measurement import Measurement

EVENTS = len(WORDS) + 2
"""The number of events of a complete stream: the words, the finish reason, and `[DONE]`."""


@asynccontextmanager
async def chat_load(job: LoadJob, measurement: Measurement) -> AsyncIterator[None]:
    """Keeps `job.concurrency` chats in flight."""
    host, _, port = job.address.rpartition(":")
    message = _message(job)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as cleanup:
        connections = []
        for _ in range(job.concurrency):
            transport, connection = await loop.create_connection(
                lambda: _ChatConnection(message, job.mode != "whole", measurement), host, int(port)
            )
            cleanup.callback(transport.abort)
            connections.append(connection)
        for connection in connections:  # under load, a server would accept them one by one
            connection.send()
        yield


def chat_body(mode: Mode) -> bytes:
    return to_json(
        {
            "model": MODELS[mode],
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": "Count from one to sixteen in words, please."},
            ],
            "max_tokens": len(WORDS),
            "stream": mode != "whole",
        }
    )


def _message(job: LoadJob) -> bytes:
    body = chat_body(job.mode)
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: {job.address}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


class _ChatConnection(asyncio.Protocol):
    """Sends the next chat when the previous response is complete."""

    def __init__(self, message: bytes, stream: bool, measurement: Measurement) -> None:
        self._message = message
        self._problem_with = problem_with_stream if stream else problem_with_completion
        self._measurement = measurement
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._sent = 0.0
        self._first_chunk = 0.0
        self._has_responded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._measurement.stopped:
            self._measurement.record_response(self._sent, 0.0, f"the connection was lost: {exc}")

    def on_body(self, body: bytes) -> None:
        if not self._body:
            self._first_chunk = time.perf_counter()
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, status = b"".join(self._body), self._parser.get_status_code()
        problem = self._problem_with(body) if status == 200 else f"status {status}: {body[:200]!r}"
        if not self._has_responded:
            self._has_responded = True
            self._measurement.add_connection()
        self._measurement.record_response(self._sent, self._first_chunk, problem)
        if not self._measurement.stopped:
            self.send()

    def send(self) -> None:
        self._body.clear()
        self._sent = time.perf_counter()
        self._transport.write(self._message)


def problem_with_completion(body: bytes) -> str | None:
    content = from_json(body)["choices"][0]["message"]["content"].strip()
    return None if content == RESPONSE_TEXT else f"unexpected response: {content!r}"


def problem_with_stream(body: bytes) -> str | None:
    """Checks for the end, the number of events, and each word. Parsing the events would slow down the generator."""
    if not body.endswith(b"data: [DONE]\n\n"):
        return f"the stream has no end: {body[-200:]!r}"
    if (events := body.count(b"data: ")) != EVENTS:
        return f"{events} events instead of {EVENTS}"
    missing = [word for word in WORDS if b'"%s ' % word.encode() not in body]
    return f"missing words: {missing}" if missing else None

"""Chats over HTTP/1.1: one keep-alive connection for each request in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import httptools
from pydantic_core import from_json, to_json

from benchmarks.harness.load.job import ANSWER, MODELS, WORDS, Job, Mode
from benchmarks.harness.load.tally import Tally

EVENTS = len(WORDS) + 2
"""Of a complete stream: the words, the finish reason, and `[DONE]`."""


@asynccontextmanager
async def chatting(job: Job, tally: Tally) -> AsyncIterator[None]:
    """Keeps `job.concurrency` chats in flight."""
    host, _, port = job.address.rpartition(":")
    message = _message(job)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as cleanup:
        connections = []
        for _ in range(job.concurrency):
            transport, connection = await loop.create_connection(
                lambda: _Connection(message, job.mode != "whole", tally), host, int(port)
            )
            cleanup.callback(transport.abort)
            connections.append(connection)
        for connection in connections:  # a server that is busy already would take them one by one
            connection.send()
        yield


def chat(mode: Mode) -> bytes:
    """The body of a request."""
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


def _message(job: Job) -> bytes:
    body = chat(job.mode)
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: {job.address}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


class _Connection(asyncio.Protocol):
    """Sends the next chat when the answer to the last one is complete."""

    def __init__(self, message: bytes, stream: bool, tally: Tally) -> None:
        self._message = message
        self._problem_with = problem_with_stream if stream else problem_with_completion
        self._tally = tally
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._sent = 0.0
        self._first = 0.0
        self._joined = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, which does not derive from it

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._tally.stopped:
            self._tally.answered(self._sent, 0.0, f"the connection was lost: {exc}")

    def on_body(self, body: bytes) -> None:
        if not self._body:
            self._first = time.perf_counter()
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, status = b"".join(self._body), self._parser.get_status_code()
        problem = self._problem_with(body) if status == 200 else f"status {status}: {body[:200]!r}"
        if not self._joined:
            self._joined = True
            self._tally.joined()
        self._tally.answered(self._sent, self._first, problem)
        if not self._tally.stopped:
            self.send()

    def send(self) -> None:
        self._body.clear()
        self._sent = time.perf_counter()
        self._transport.write(self._message)


def problem_with_completion(body: bytes) -> str | None:
    content = from_json(body)["choices"][0]["message"]["content"].strip()
    return None if content == ANSWER else f"another answer: {content!r}"


def problem_with_stream(body: bytes) -> str | None:
    """Each word must be there, in an event of its own, and the end; parsing all of it would cost the generator more."""
    if not body.endswith(b"data: [DONE]\n\n"):
        return f"a stream without its end: {body[-200:]!r}"
    if (events := body.count(b"data: ")) != EVENTS:
        return f"{events} events instead of {EVENTS}"
    missing = [word for word in WORDS if b'"%s ' % word.encode() not in body]
    return f"words are missing: {missing}" if missing else None

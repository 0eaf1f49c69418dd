"""The engine of the peers: OpenAI's chat completions over HTTP with prepared responses, as fast as Python allows.

`python -m benchmarks.peers.engine PORT`. The model's name selects the mode: not streamed, streamed at once, or paced.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop
from pydantic_core import from_json, to_json

from benchmarks.harness.load.job import MODELS, PACE_SECONDS, RESPONSE_TEXT, WORDS

_COMMON = {"id": "chatcmpl-0", "created": 1700000000, "model": "count"}


def _json_response(document: object) -> bytes:
    body = to_json(document)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _completion() -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": RESPONSE_TEXT}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 16, "completion_tokens": 16, "total_tokens": 32}
    return _json_response({**_COMMON, "object": "chat.completion", "choices": [choice], "usage": usage})


def _chunks() -> list[bytes]:
    """Returns the events of a stream: one per word, one for the finish reason, and `[DONE]`."""
    choices: list[object] = [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None} for word in WORDS]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [to_json({**_COMMON, "object": "chat.completion.chunk", "choices": [choice]}) for choice in choices]
    return [b"%x\r\n%s\r\n" % (len(event) + 8, b"data: " + event + b"\n\n") for event in events] + [
        b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    ]


_INDEX = _json_response({"object": "list", "data": [{"id": model, "object": "model"} for model in MODELS.values()]})
"""The response to health checks and to requests for the list of models."""
_COMPLETION = _completion()
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNKS = _chunks()
_STREAM = _HEAD + b"".join(_CHUNKS)


class _EngineConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        model = from_json(body)["model"] if body else ""
        if model == MODELS["whole"]:
            self._transport.write(_COMPLETION)
        elif model == MODELS["stream"]:
            self._transport.write(_STREAM)
        elif model == MODELS["paced"]:
            self._transport.write(_HEAD)
            self._pace(0)
        else:
            self._transport.write(_INDEX)

    def _pace(self, index: int) -> None:
        if index == len(WORDS):
            self._transport.write(b"".join(_CHUNKS[index:]))
            return
        self._transport.write(_CHUNKS[index])
        asyncio.get_running_loop().call_later(PACE_SECONDS, self._pace, index + 1)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_EngineConnection, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))

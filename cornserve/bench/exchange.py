"""One request and its answer, timed. aiohttp: httpx grows dearer with every open connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from pydantic_core import from_json

from cornserve.bench.samples import Sample
from cornserve.client.address import GatewayAddress
from cornserve.client.calls import ApiCall
from cornserve.client.errors import ApiStatusError, error_from_body, error_from_json
from cornserve.client.sse import ServerSentEvent, SseParser

Clock = Callable[[], float]

_STREAM = "text/event-stream"


class Exchanges:
    """`async with Exchanges(address) as exchanges:`; connections are kept, and as many as there are requests."""

    def __init__(self, address: GatewayAddress) -> None:
        self._address = address
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Exchanges:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=not self._address.is_loopback,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def run(self, call: ApiCall, sample: Sample, clock: Clock = time.perf_counter) -> None:
        """Fills the sample in. A request that fails has an error in it, of a few kinds that can be counted."""
        try:
            async with asyncio.timeout(call.read_timeout), self._send(call) as response:
                if response.status != 200:
                    raise error_from_body(response.status, await response.read())
                if call.accept == _STREAM:
                    await self._stream(response, sample, clock)
                else:
                    _take_usage(from_json(await response.read()), sample)
        except ApiStatusError as error:
            sample.error, sample.reason = _kind(error), error.message
        except TimeoutError:
            sample.error = "no answer in time"
        except aiohttp.ClientConnectorError as error:
            sample.error = f"cannot connect: {error.os_error.strerror or error.os_error}"
        except (aiohttp.ClientError, OSError) as error:
            sample.error = f"the connection broke: {type(error).__name__}"
        except ValueError:
            sample.error = "the answer is no JSON"
        sample.ended = clock()

    def _send(self, call: ApiCall) -> Any:
        url = self._address.url + call.path
        return self._session.request(call.method, url, data=call.body, headers=self._address.headers(call))

    async def _stream(self, response: aiohttp.ClientResponse, sample: Sample, clock: Clock) -> None:
        async for event in _events(response):
            match event.name, from_json(event.data) if event.data not in ("", "[DONE]") else None:
                case _, {"error": _} as answer:
                    raise error_from_json(200, answer, event.data)
                case "item", _:
                    sample.piece(clock())
                case "result", answer:
                    _take_usage(answer, sample)
                    return
                case _, {"choices": choices} as chunk:
                    if any(_says_something(choice) for choice in choices):
                        sample.piece(clock())
                    _take_usage(chunk, sample)
                case "message", None if event.data:
                    return
        raise aiohttp.ClientPayloadError("the stream was cut")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[ServerSentEvent]:
    parser = SseParser()
    async for data in response.content.iter_any():
        for event in parser.feed(data):
            yield event


def _says_something(choice: Any) -> bool:
    """Text, a call of a tool, or whatever else a model says; not that it starts, nor that it has finished."""
    delta = choice.get("delta", choice)
    return any(value for name, value in delta.items() if name not in ("role", "index", "finish_reason"))


def _take_usage(answer: Any, sample: Sample) -> None:
    match answer:
        case {"usage": {"prompt_tokens": int(prompt), "completion_tokens": int(output)}}:
            sample.prompt_tokens, sample.output_tokens = prompt, output


def _kind(error: ApiStatusError) -> str:
    """Messages may differ with every request."""
    code = f" {error.code}" if error.code else ""
    return (
        f"ended with an error event:{code or ' ' + error.message}" if error.status == 200 else f"{error.status}{code}"
    )

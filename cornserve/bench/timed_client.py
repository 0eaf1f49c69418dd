"""Sends requests and measures their latencies. Uses aiohttp because httpx slows down with each open connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from pydantic_core import from_json

from cornserve.bench.statistics import RequestSample
from cornserve.client.address import GatewayAddress
from cornserve.client.calls import ApiCall
from cornserve.client.errors import ApiStatusError, error_from_body, error_from_json
from cornserve.client.sse import ServerSentEvent, SseParser

Clock = Callable[[], float]

SAMPLE_RATE = 24_000
"""Samples per second of the audio of chats, OpenAI's format `pcm16`."""

BYTES_PER_SAMPLE = 2

_STREAM = "text/event-stream"
_AUDIO = "audio/*"


class TimedClient:
    """An asynchronous context manager. Keeps connections alive and does not limit their number."""

    def __init__(self, address: GatewayAddress) -> None:
        self._address = address
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> TimedClient:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=not self._address.is_loopback,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def run(self, call: ApiCall, sample: RequestSample, clock: Clock = time.perf_counter) -> None:
        """Sends the request and fills in the sample, with the kind of the error if the request fails."""
        try:
            async with asyncio.timeout(call.read_timeout), self._send(call) as response:
                if response.status != 200:
                    raise error_from_body(response.status, await response.read())
                try:
                    if call.accept == _STREAM:
                        await self._stream(response, sample, clock)
                    elif call.accept == _AUDIO:
                        async for samples in response.content.iter_any():
                            sample.record_audio(clock(), len(samples) / BYTES_PER_SAMPLE / SAMPLE_RATE)
                    else:
                        _record_usage(from_json(await response.read()), sample)
                except (AttributeError, LookupError, TypeError):
                    sample.error = "the response has an unknown format"
        except ApiStatusError as error:
            sample.error, sample.reason = _kind(error), error.message
        except TimeoutError:
            sample.error = "timed out"
        except aiohttp.ClientConnectorError as error:
            sample.error = f"cannot connect: {error.os_error.strerror or error.os_error}"
        except (aiohttp.ClientError, OSError) as error:
            sample.error = f"the connection broke: {type(error).__name__}"
        except ValueError:
            sample.error = "the response is not JSON"
        sample.ended = clock()

    def _send(self, call: ApiCall) -> Any:
        url = self._address.url + call.path
        return self._session.request(call.method, url, data=call.body, headers=self._address.headers(call))

    async def _stream(self, response: aiohttp.ClientResponse, sample: RequestSample, clock: Clock) -> None:
        async for event in _events(response):
            content = from_json(event.data) if event.data not in ("", "[DONE]") else None
            match _event_name(event, content), content:
                case _, {"error": _} as document:
                    raise error_from_json(200, document, event.data)
                case "item", _:
                    sample.record_chunk(clock())
                case "result" | "speech.audio.done", document:
                    _record_usage(document, sample)
                    return
                case _, {"choices": choices, "modality": "audio"} as chunk:  # of vLLM-Omni
                    for audio in _audio_contents(choices):
                        sample.record_audio(clock(), pcm_seconds(audio, SAMPLE_RATE))
                    _record_usage(chunk, sample)
                case _, {"choices": choices} as chunk:
                    if any(_has_output(choice) for choice in choices):
                        sample.record_chunk(clock())
                    for audio in _audio_of(choices):
                        sample.record_audio(clock(), pcm_seconds(audio, SAMPLE_RATE))
                    _record_usage(chunk, sample)
                case "speech.audio.delta", {"audio": str(audio), **rest}:
                    rate = rest.get("sample_rate")
                    sample.record_audio(clock(), pcm_seconds(audio, rate if isinstance(rate, int) else SAMPLE_RATE))
                case "message", None if event.data:
                    return
        raise aiohttp.ClientPayloadError("the stream was cut")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[ServerSentEvent]:
    parser = SseParser()
    async for data in response.content.iter_any():
        for event in parser.feed(data):
            yield event


def _has_output(choice: Any) -> bool:
    """Returns whether the choice contains text, a tool call or other output, not only its start, its finish reason
    or its audio."""
    delta = choice.get("delta", choice) or {}
    is_spoken = bool((delta.get("audio") or {}).get("transcript"))
    return is_spoken or any(
        value for name, value in delta.items() if name not in ("role", "index", "finish_reason", "audio")
    )


def _audio_of(choices: Any) -> list[str]:
    """Returns the audio of chunks, in base64."""
    deltas = (choice.get("delta") or {} for choice in choices)
    return [audio["data"] for delta in deltas if (audio := delta.get("audio")) and audio.get("data")]


def _audio_contents(choices: Any) -> list[str]:
    """Returns the audio of chunks that contain it as text, in base64."""
    deltas = (choice.get("delta") or {} for choice in choices)
    return [content for delta in deltas if isinstance(content := delta.get("content"), str) and content]


def _event_name(event: ServerSentEvent, content: Any) -> str:
    """Returns the name of an event. OpenAI's speech has it only in the data, as `type`."""
    if event.name == "message" and isinstance(content, dict) and isinstance(content.get("type"), str):
        name: str = content["type"]
        return name
    return event.name


def pcm_seconds(audio: str, sample_rate: int) -> float:
    """Returns the duration of 16-bit samples of one channel in base64."""
    return (len(audio) * 3 // 4 - audio.count("=", -2)) / 2 / sample_rate


def _record_usage(document: Any, sample: RequestSample) -> None:
    match document:
        case {"usage": {"prompt_tokens": int(prompt), "completion_tokens": int(output)}}:
            sample.prompt_tokens, sample.output_tokens = prompt, output
        case {"usage": {"input_tokens": int(prompt), "output_tokens": int(output)}}:  # of images
            sample.prompt_tokens, sample.output_tokens = prompt, output


def _kind(error: ApiStatusError) -> str:
    """Returns status and code, without the message, which may differ for each request."""
    code = f" {error.code}" if error.code else ""
    return (
        f"ended with an error event:{code or ' ' + error.message}" if error.status == 200 else f"{error.status}{code}"
    )

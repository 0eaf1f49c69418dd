"""The load generator with a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cornserve.bench.load_generator import LoadGenerator
from cornserve.bench.result import BenchResult
from cornserve.bench.run import WarmUpError, run
from cornserve.bench.settings import BenchSettings
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client.address import GatewayAddress
from cornserve.client.calls import invoke
from tests.unit.http_server import StubResponse, StubServer, json_response, serving, sse_response

CHAT = "POST /v1/chat/completions"
NATIVE = "POST /v1/apps/a/invoke"


def chunks(*documents: Any, cut: bool = False) -> StubResponse:
    lines = [*(json.dumps(document) for document in documents), *([] if cut else ["[DONE]"])]
    return StubResponse("".join(f"data: {line}\n\n" for line in lines).encode(), type="text/event-stream", cut=cut)


def delta_chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


STARTS, ONE, TWO = delta_chunk(role="assistant", content=""), delta_chunk(content="one"), delta_chunk(content="two")
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


@pytest.fixture
def server() -> Iterator[StubServer]:
    with serving() as server:
        yield server


@pytest.fixture
async def client(server: StubServer) -> AsyncIterator[TimedClient]:
    async with TimedClient(GatewayAddress.resolve(server.url)) as client:
        yield client


async def run_load(client: TimedClient, **settings: Any) -> LoadGenerator:
    complete = BenchSettings(app="a", **{"prompt": "Hello!", "requests": 1, **settings})
    load = LoadGenerator(complete.shape(), complete.request_source(), client, complete.seed)
    await load.run()
    return load


async def test_tokens_are_the_servers_count_or_the_chunks(server: StubServer, client: TimedClient) -> None:
    server.on(CHAT, chunks(STARTS, ONE, TWO, USAGE))
    (sample,) = (await run_load(client)).statistics.samples
    assert (sample.chunks, sample.tokens, sample.prompt_tokens) == (2, 3, 7)
    server.on(CHAT, chunks(STARTS, ONE, TWO, {"choices": [{"index": 0, "delta": None}]}))
    (sample,) = (await run_load(client)).statistics.samples
    assert (sample.chunks, sample.tokens) == (2, 2)


async def test_a_response_without_a_stream_has_its_usage(server: StubServer, client: TimedClient) -> None:
    server.on(CHAT, json_response(USAGE))
    (sample,) = (await run_load(client, stream=False)).statistics.samples
    assert (sample.ttft, sample.tokens) == (None, 3)


async def test_speech_is_timed_to_its_first_audio(server: StubServer, client: TimedClient) -> None:
    second = b64encode(bytes(2 * 24_000)).decode()
    spoken = [delta_chunk(audio=audio) for audio in ({"transcript": "one"}, {"data": second}, {"data": second})]
    server.on(CHAT, chunks(STARTS, *spoken, USAGE))
    load = await run_load(client, voice="ethan")
    (sample,) = load.statistics.samples
    assert (sample.chunks, sample.tokens, sample.audio_seconds) == (1, 3, 2)
    assert sample.ttft is not None
    assert sample.ttfa is not None
    assert sample.ttft <= sample.ttfa <= sample.latency
    audio = BenchResult.from_run(load, BenchSettings(app="a"), server.url).audio
    assert audio is not None
    assert audio.seconds == 2
    assert audio.real_time_factor == pytest.approx(sample.latency / 2, abs=1e-4)

    delta = ("speech.audio.delta", {"audio": second, "sample_rate": 16_000})
    done = ("speech.audio.done", {"usage": {"input_tokens": 3, "output_tokens": 9}})
    server.on("POST /v1/audio/speech", sse_response(delta, done))
    (sample,) = (await run_load(client, speech=True)).statistics.samples
    assert (sample.audio_seconds, sample.prompt_tokens, sample.tokens) == (1.5, 3, 9)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (json_response({"error": {"message": "request 17 is too much", "code": "busy"}}, 429), "429 busy"),
        (chunks(ONE, cut=True), "the connection broke: ClientPayloadError"),
        (chunks(ONE, {"error": {"message": "it died", "code": "internal"}}), "ended with an error event: internal"),
        (StubResponse(b"data: {\n\n", type="text/event-stream"), "the response is not JSON"),
        (chunks({"choices": None}), "the response has an unknown format"),
        (chunks({"choices": [None]}), "the response has an unknown format"),
        (chunks(delta_chunk(audio={"data": 1})), "the response has an unknown format"),
    ],
)
async def test_errors_are_counted_by_kind(
    server: StubServer, client: TimedClient, answer: StubResponse, kind: str
) -> None:
    server.on(CHAT, answer)
    statistics = (await run_load(client, requests=3)).statistics
    assert statistics.errors == {kind: 3}
    assert statistics.samples == []


async def test_an_error_before_the_response_is_not_one_of_the_server(
    client: TimedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GatewayAddress, "headers", None)
    with pytest.raises(TypeError):
        await client.run(invoke("a", {}, None), RequestSample(due=0, sent=0))


async def test_streams_of_an_apps_own_requests_are_timed(
    server: StubServer, client: TimedClient, tmp_path: Any
) -> None:
    (tmp_path / "request.json").write_text("{}")
    items = [("item", {"stream": "words", "item": word}) for word in "abc"]
    server.on(NATIVE, sse_response(*items, ("result", {"words": None})))
    (sample,) = (await run_load(client, prompt=None, request=tmp_path / "request.json")).statistics.samples
    assert (sample.chunks, len(sample.gaps)) == (3, 2)


async def test_a_load_ends_after_its_requests_or_its_duration(server: StubServer, client: TimedClient) -> None:
    server.on(CHAT, chunks(ONE))
    assert len((await run_load(client, requests=20, concurrency=4)).statistics.samples) == 20
    load = await run_load(client, requests=None, duration=0.2, rate=50)
    assert all(sample.due < 0.2 for sample in load.statistics.samples)


async def test_a_late_generator_does_not_make_the_server_look_fast(server: StubServer, client: TimedClient) -> None:
    server.on(CHAT, chunks(ONE))
    asyncio.get_running_loop().call_soon(time.sleep, 0.3)
    load = await run_load(client, requests=20, rate=1000)
    first = min(load.statistics.samples, key=lambda sample: sample.due)
    assert first.latency >= 0.3 - first.due
    assert BenchResult.from_run(load, BenchSettings(app="a"), server.url).generator.was_the_limit


async def test_results_are_grouped_by_the_media_of_requests(
    server: StubServer, client: TimedClient, tmp_path: Path
) -> None:
    image, audio = {"type": "image_url", "image_url": {"url": "x"}}, {"type": "input_audio", "input_audio": {}}
    contents: list[Any] = [[image, image], [image, audio], "text", [audio]]
    lines = [json.dumps({"messages": [{"role": "user", "content": content}]}) + "\n" for content in contents]
    (tmp_path / "chats.jsonl").write_text("".join(lines))
    server.on(CHAT, chunks(ONE), chunks(ONE), chunks(ONE), json_response({}, 500))
    load = await run_load(client, requests=4, concurrency=1, prompt=None, dataset=tmp_path / "chats.jsonl")
    result = BenchResult.from_run(load, BenchSettings(app="a"), server.url)
    counts = {name: (found.answered, found.failed, found.media) for name, found in result.modalities.items()}
    assert counts == {"text": (1, 0, 0), "image": (2, 0, 3), "audio": (1, 1, 1)}
    assert all(found.e2e_ms is not None and found.ttft_ms is not None for found in result.modalities.values())
    assert [sample.media for sample in result.samples] == [{"image": 2}, {"image": 1, "audio": 1}, {}]


async def test_failed_requests_do_not_meet_the_slo(server: StubServer, client: TimedClient) -> None:
    settings = BenchSettings(app="a", slo="e2e=100s")
    server.on(CHAT, json_response({}, 500), chunks(ONE))
    load = await run_load(client, requests=4, concurrency=1)
    goodput = BenchResult.from_run(load, settings, server.url).goodput
    assert goodput is not None
    assert (goodput.met, goodput.share) == (3, 0.75)


async def test_a_stopped_load_keeps_its_measurements(server: StubServer, client: TimedClient) -> None:
    server.on(CHAT, chunks(ONE))
    settings = BenchSettings(app="a", requests=1_000_000)
    load = LoadGenerator(settings.shape(), settings.request_source(), client, 0)
    running = asyncio.create_task(load.run())
    while not load.statistics.samples:
        await asyncio.sleep(0)
    load.stop()
    await running
    counts = BenchResult.from_run(load, settings, server.url).requests
    assert counts.answered + counts.unfinished == counts.sent < 1_000_000


async def test_a_failed_warm_up_prevents_the_load(server: StubServer) -> None:
    server.on(CHAT, json_response({"error": {"message": "the app 'a' does not support /v1/chat/completions"}}, 400))
    settings = BenchSettings(app="a", warmup=3)

    async def show_progress(load: LoadGenerator) -> None:
        raise AssertionError("the load has started")

    with pytest.raises(WarmUpError, match="a did not respond to the warm-up: the app 'a' does not support /v1/chat"):
        await run(GatewayAddress.resolve(server.url), settings.request_source(), settings, show_progress)
    assert len(server.requests) == 1


async def test_a_request_without_an_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with TimedClient(GatewayAddress.resolve(f"http://127.0.0.1:{silent.getsockname()[1]}")) as client:
            sample = RequestSample(0.0, sent=0.0)
            await client.run(replace(invoke("a", {}, None), read_timeout=0.05), sample)

    assert sample.error == "timed out"

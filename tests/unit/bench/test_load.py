"""Load on a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from cornserve.bench.exchange import Exchanges
from cornserve.bench.load import Load
from cornserve.bench.result import Result
from cornserve.bench.run import WarmUpError, run
from cornserve.bench.settings import Settings
from cornserve.client.address import GatewayAddress
from tests.unit.http_server import Answer, Server, json_answer, serving, sse_answer

CHAT = "POST /v1/chat/completions"
NATIVE = "POST /v1/apps/a/invoke"


def chunks(*documents: Any, cut: bool = False) -> Answer:
    lines = [*(json.dumps(document) for document in documents), *([] if cut else ["[DONE]"])]
    return Answer("".join(f"data: {line}\n\n" for line in lines).encode(), type="text/event-stream", cut=cut)


def said(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


STARTS, ONE, TWO = said(role="assistant", content=""), said(content="one"), said(content="two")
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
async def exchanges(server: Server) -> AsyncIterator[Exchanges]:
    async with Exchanges(GatewayAddress.resolve(server.url)) as exchanges:
        yield exchanges


async def loaded(exchanges: Exchanges, **settings: Any) -> Load:
    chosen = Settings(app="a", **{"prompt": "Hello!", "requests": 1, **settings})
    load = Load(chosen.shape, chosen.work(), exchanges, chosen.seed)
    await load.run()
    return load


async def test_tokens_are_what_the_server_counted_and_pieces_what_came(server: Server, exchanges: Exchanges) -> None:
    server.on(CHAT, chunks(STARTS, ONE, TWO, USAGE))
    (sample,) = (await loaded(exchanges)).tally.samples
    assert (sample.pieces, sample.tokens, sample.prompt_tokens) == (2, 3, 7)
    server.on(CHAT, chunks(STARTS, ONE, TWO))
    (sample,) = (await loaded(exchanges)).tally.samples
    assert (sample.pieces, sample.tokens) == (2, 2)


async def test_an_answer_that_is_not_streamed_has_its_usage(server: Server, exchanges: Exchanges) -> None:
    server.on(CHAT, json_answer(USAGE))
    (sample,) = (await loaded(exchanges, stream=False)).tally.samples
    assert (sample.ttft, sample.tokens) == (None, 3)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (json_answer({"error": {"message": "request 17 is too much", "code": "busy"}}, 429), "429 busy"),
        (chunks(ONE, cut=True), "the connection broke: ClientPayloadError"),
        (chunks(ONE, {"error": {"message": "it died", "code": "internal"}}), "ended with an error event: internal"),
        (Answer(b"data: {\n\n", type="text/event-stream"), "the answer is no JSON"),
    ],
)
async def test_errors_are_counted_by_their_kind(
    server: Server, exchanges: Exchanges, answer: Answer, kind: str
) -> None:
    server.on(CHAT, answer)
    tally = (await loaded(exchanges, requests=3)).tally
    assert tally.errors == {kind: 3}
    assert tally.samples == []


async def test_an_apps_own_streams_are_timed(server: Server, exchanges: Exchanges, tmp_path: Any) -> None:
    (tmp_path / "request.json").write_text("{}")
    items = [("item", {"stream": "words", "item": word}) for word in "abc"]
    server.on(NATIVE, sse_answer(*items, ("result", {"words": None})))
    (sample,) = (await loaded(exchanges, prompt=None, request=tmp_path / "request.json")).tally.samples
    assert (sample.pieces, len(sample.gaps)) == (3, 2)


async def test_a_load_ends_after_its_requests_or_its_time(server: Server, exchanges: Exchanges) -> None:
    server.on(CHAT, chunks(ONE))
    assert len((await loaded(exchanges, requests=20, concurrency=4)).tally.samples) == 20
    load = await loaded(exchanges, requests=None, duration=0.2, rate=50)
    assert all(sample.due < 0.2 for sample in load.tally.samples)


async def test_a_generator_that_is_late_makes_no_server_look_fast(server: Server, exchanges: Exchanges) -> None:
    server.on(CHAT, chunks(ONE))
    asyncio.get_running_loop().call_soon(time.sleep, 0.3)
    load = await loaded(exchanges, requests=20, rate=1000)
    first = min(load.tally.samples, key=lambda sample: sample.due)
    assert first.latency >= 0.3 - first.due
    assert Result.of(load, Settings(app="a"), server.url).generator.was_the_limit


async def test_what_failed_is_not_good(server: Server, exchanges: Exchanges) -> None:
    settings = Settings(app="a", slo="e2e=100s")
    server.on(CHAT, json_answer({}, 500), chunks(ONE))
    load = await loaded(exchanges, requests=4, concurrency=1)
    goodput = Result.of(load, settings, server.url).goodput
    assert goodput is not None
    assert (goodput.met, goodput.share) == (3, 0.75)


async def test_a_load_that_is_stopped_keeps_what_it_has(server: Server, exchanges: Exchanges) -> None:
    server.on(CHAT, chunks(ONE))
    settings = Settings(app="a", requests=1_000_000)
    load = Load(settings.shape, settings.work(), exchanges, 0)
    running = asyncio.create_task(load.run())
    while not load.tally.samples:
        await asyncio.sleep(0)
    load.stop()
    await running
    counts = Result.of(load, settings, server.url).requests
    assert counts.answered + counts.unfinished == counts.sent < 1_000_000


async def test_an_app_that_does_not_answer_the_warm_up_is_left_alone(server: Server) -> None:
    server.on(CHAT, json_answer({"error": {"message": "the app 'a' takes no chats"}}, 400))
    settings = Settings(app="a", warmup=3)

    async def unseen(load: Load) -> None:
        raise AssertionError("there is no load")

    with pytest.raises(WarmUpError, match="a did not answer the warm-up: the app 'a' takes no chats"):
        await run(GatewayAddress.resolve(server.url), settings.work(), settings, unseen)
    assert len(server.asked) == 1

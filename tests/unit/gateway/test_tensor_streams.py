"""Requests whose invocations pass streams of tensors to each other, including when executors die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.store.base import APPS, AppRecord, Store
from cornserve.transport.memory.segment import PAGE
from cornserve.transport.producer.production import STREAM_WINDOW
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.published_route import publish_route
from tests.waiting import until

LONG = 1000.0
"""Seconds. An invocation that takes this long ends only if it is cancelled or its executor dies."""

SHORT = 0.02
"""Seconds for each word."""

WORDS = " ".join(str(number) for number in range(3 * STREAM_WINDOW))

DICTATION = """
from cornserve import App, Task
from cornserve_echo import EchoResponse
from cornserve_echo.dictation import SpeakRequest, SpeakTask, WriteRequest, WriteTask

class Dictation(SpeakRequest):
    writing: float = 0
    limit: int = 1000000
    writers: int = 1
    values_first: bool = False
    live: str = ""
    twice: bool = False
    with_text: bool = True

class Dictate(Task[Dictation, EchoResponse]):
    def post_init(self) -> None:
        self.speak = SpeakTask()
        self.write = WriteTask()

    def invoke(self, request: Dictation) -> EchoResponse:
        speak = SpeakRequest(text=request.text, seconds=request.seconds, repeatable=request.repeatable)
        speech = self.speak.invoke(speak)
        if request.values_first:
            assert speech.count
        words = speech.words
        for number in range(request.writers):
            final = number == request.writers - 1
            written = self.write.invoke(
                WriteRequest(words=words, seconds=request.writing if final else 0, limit=request.limit)
            )
            words = words if request.twice else written.again
        if not request.with_text:
            return EchoResponse(text="", words_sent=speech.count)
        if request.live:
            words = speech.spoken if request.live == "spoken" else written.written
            return EchoResponse(words=words, text="", words_sent=0)
        return EchoResponse(text=written.text, words_sent=speech.count)

app = App(name="dictation", paths=[Dictate()])
"""


class StreamedDictation:
    """A streaming request, which runs until it ends or `disconnect` is called."""

    def __init__(self, gateway: httpx.AsyncClient, body: dict[str, Any]) -> None:
        self.words: list[str] = []
        """The words that have arrived."""
        self.errors: list[Any] = []
        self._gateway = gateway
        self._body = body
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        headers = {"accept": "text/event-stream"}
        url = "/v1/apps/dictation/invoke"
        async with self._gateway.stream("POST", url, json=self._body, headers=headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    if "item" in event:
                        self.words.append(event["item"])
                    elif "error" in event:
                        self.errors.append(event["error"])

    async def ended(self) -> None:
        await self._reading

    async def disconnect(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class DictationApp:
    """The executors of the app. Tests add them, kill them, and publish their endpoints in place of a controller."""

    def __init__(self, store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors, record: AppRecord) -> None:
        self._store = store
        self._gateway = gateway
        self.executors = executors
        self._record = record
        self._app: App = load_app("dictation", record.spec, "dictation_of_the_streams_test")
        self._keys = {spec.executor: key for key, spec in self._app.executor_specs().items()}

    async def speaker(self) -> str:
        return await self.executors.replica(self._app.executor_specs()[self._keys["echo-speaker"]])

    async def writer(self) -> str:
        return await self.executors.replica(self._app.executor_specs()[self._keys["echo-typist"]])

    async def publish(self, *, speakers: list[str], writers: list[str]) -> None:
        endpoints = {self._keys["echo-speaker"]: speakers, self._keys["echo-typist"]: writers}
        self._record = await publish_route(self._store, self._record, endpoints)
        await until(self._is_served)

    async def _is_served(self) -> bool:
        return (await self._gateway.get("/v1/models/dictation")).status_code == 200

    def send(self, text: str = WORDS, timeout: float = 60, **fields: Any) -> asyncio.Task[httpx.Response]:
        headers = {"x-request-timeout": str(timeout)}
        body = {"text": text, **fields}
        return asyncio.create_task(self._gateway.post("/v1/apps/dictation/invoke", json=body, headers=headers))

    def stream(self, text: str = WORDS, **fields: Any) -> StreamedDictation:
        return StreamedDictation(self._gateway, {"text": text, **fields})

    def held_bytes(self) -> float:
        """Returns the bytes of all slabs that tensors in use occupy."""
        return self.executors.total("cornserve_transport_slab_bytes", {"state": "held"})

    async def is_idle(self) -> None:
        """Waits until nothing runs and all slabs are free."""
        await until(lambda: self.executors.running() == 0 and self.held_bytes() == 0)


@pytest_asyncio.fixture(loop_scope="module")
async def dictation(store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[DictationApp]:
    yield DictationApp(
        store, gateway, executors, await store.create(APPS, "dictation", AppSpec(source=AppSource(inline=DICTATION)))
    )
    unload_app("dictation_of_the_streams_test")


@pytest_asyncio.fixture(loop_scope="module")
async def served(dictation: DictationApp) -> DictationApp:
    await dictation.publish(speakers=[await dictation.speaker()], writers=[await dictation.writer()])
    return dictation


async def test_a_stream_arrives_completely_and_in_order(served: DictationApp) -> None:
    assert (await served.send()).json()["text"] == WORDS
    assert (await served.send("")).json() == {"words": None, "text": "", "words_sent": 0}
    await served.is_idle()


async def test_streams_can_be_chained(served: DictationApp) -> None:
    assert (await served.send(writers=3)).json()["text"] == WORDS


async def test_the_consumer_starts_before_the_producer_ends_and_a_disconnect_stops_both(
    served: DictationApp, executors: EchoExecutors
) -> None:
    dictated = served.stream("word " * 10_000, seconds=SHORT, writers=2, live="written")
    await until(lambda: bool(dictated.words))
    assert executors.running() == 3

    await dictated.disconnect()

    await served.is_idle()


async def test_a_slow_consumer_slows_its_producer_down(served: DictationApp) -> None:
    dictated = served.stream(live="spoken", writing=LONG)
    await until(lambda: len(dictated.words) == STREAM_WINDOW)

    await served.send("another request passes")

    assert len(dictated.words) == STREAM_WINDOW
    assert served.held_bytes() == STREAM_WINDOW * PAGE
    await dictated.disconnect()
    await served.is_idle()


async def test_a_consumer_that_ends_early_does_not_block_its_producer(served: DictationApp) -> None:
    response = await served.send(limit=1)

    assert (response.json()["text"], response.json()["words_sent"]) == ("0", 3 * STREAM_WINDOW)
    await served.is_idle()


async def test_a_producer_does_not_wait_for_a_stream_without_a_consumer(served: DictationApp) -> None:
    assert (await served.send(writers=0, with_text=False)).json()["words_sent"] == 3 * STREAM_WINDOW


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"twice": True, "writers": 2}, "a TensorStream has one consumer"),
        ({"values_first": True}, "call the consumer of a TensorStream before `invoke` waits for a value"),
    ],
)
async def test_a_stream_has_one_consumer_that_starts_with_the_producer(
    served: DictationApp, fields: dict[str, Any], reason: str
) -> None:
    response = await served.send(**fields)

    assert response.status_code == 500
    assert reason in response.json()["error"]["message"]
    await served.is_idle()


async def test_a_producer_that_dies_is_repeated_with_its_consumers(dictation: DictationApp) -> None:
    speakers = [await dictation.speaker(), await dictation.speaker()]
    await dictation.publish(speakers=speakers, writers=[await dictation.writer()])
    response = dictation.send(seconds=SHORT, writers=2)
    await until(lambda: dictation.held_bytes() > 0)

    await dictation.executors.kill(next(each for each in speakers if dictation.executors.running(each)))

    assert (await response).json()["text"] == WORDS


async def test_a_consumer_that_dies_reads_the_stream_again(dictation: DictationApp) -> None:
    writers = [await dictation.writer(), await dictation.writer()]
    await dictation.publish(speakers=[await dictation.speaker()], writers=writers)
    spoken = dictation.stream(seconds=SHORT, live="spoken")
    await until(lambda: len(spoken.words) > 2)

    await dictation.executors.kill(next(each for each in writers if dictation.executors.running(each)))

    await spoken.ended()
    assert (" ".join(spoken.words), spoken.errors) == (WORDS, [])


@pytest.mark.parametrize(
    ("fields", "dies"),
    [
        ({"live": "spoken", "repeatable": False}, "speaker"),
        ({"live": "written"}, "speaker"),
        ({"live": "written"}, "writer"),
    ],
)
async def test_output_that_has_been_read_is_not_repeated_differently(
    served: DictationApp, executors: EchoExecutors, fields: dict[str, Any], dies: str
) -> None:
    dictated = served.stream(seconds=SHORT, **fields)
    await until(lambda: bool(dictated.words))
    speaker, writer = executors.services

    await executors.kill(speaker if dies == "speaker" else writer)

    await dictated.ended()
    assert [error["code"] for error in dictated.errors] == ["executor_died"]
    await served.is_idle()

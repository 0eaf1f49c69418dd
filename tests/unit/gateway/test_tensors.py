"""What becomes of requests whose invocations hand tensors to each other, also when executors die (DESIGN §5, §7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.record import AppSpec, AppStatus, Phase, Route
from cornserve.app.source import unload_app
from cornserve.control.store.base import APPS, AppRecord, Store
from cornserve.v1 import executor_pb2 as pb
from tests.unit.echo_executors import SLAB_BYTES, EchoExecutors
from tests.waiting import until

LONG = 1000.0
"""Seconds: such an invocation ends only with its executor."""

POST = """
from pydantic import BaseModel

from cornserve import App, Task
from cornserve_echo import EchoResponse
from cornserve_echo.notes import NoteRequest, NoteTask, ReadRequest, ReadTask

class Letters(BaseModel):
    texts: list[str]
    writing: float = 0
    reading: float = 0
    nbytes: int = 0
    fail: str | None = None
    one_by_one: bool = False
    readers: int = 1

class Post(Task[Letters, EchoResponse]):
    def post_init(self) -> None:
        self.write = NoteTask()
        self.read = ReadTask()

    def invoke(self, request: Letters) -> EchoResponse:
        notes = []
        for text in request.texts:
            note = self.write.invoke(
                NoteRequest(text=text, seconds=request.writing, nbytes=request.nbytes, fail=request.fail)
            )
            notes.append(note)
            if request.one_by_one:
                assert note.words  # a value: the next note is recorded when this one is there
        read = ReadRequest(notes=[note.note for note in notes], seconds=request.reading)
        answers = [self.read.invoke(read) for _ in range(request.readers)]
        return EchoResponse(text=" | ".join(answer.text for answer in answers), words_sent=len(notes))

app = App(name="post", paths=[Post()])
"""


class Post:
    """The executors of the app: a test adds and kills them, and publishes their endpoints as the controller would."""

    def __init__(self, store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors, record: AppRecord) -> None:
        self._store = store
        self._gateway = gateway
        self.executors = executors
        self._record = record
        self._app: App = load_app("post", record.spec, "post_of_the_tensors_test")
        self._keys = {spec.executor: key for key, spec in self._app.executor_specs().items()}

    async def writer(self) -> str:
        return await self.executors.replica(self._app.executor_specs()[self._keys["echo-writer"]])

    async def reader(self) -> str:
        return await self.executors.replica(self._app.executor_specs()[self._keys["echo-reader"]])

    async def publish(self, *, writers: list[str], readers: list[str]) -> None:
        endpoints = {self._keys["echo-writer"]: writers, self._keys["echo-reader"]: readers}
        route = Route(generation=1, spec=self._record.spec, shares=[1.0], endpoints=endpoints)
        status = AppStatus(phase=Phase.SERVING, generation=1, route=route)
        self._record = await self._store.update_status(APPS, "post", status, self._record.version)
        await until(self._is_served)

    async def _is_served(self) -> bool:
        return (await self._gateway.get("/v1/models/post")).status_code == 200

    def send(self, *texts: str, timeout: float = 60, **fields: Any) -> asyncio.Task[httpx.Response]:
        headers = {"x-request-timeout": str(timeout)}
        body = {"texts": texts, **fields}
        return asyncio.create_task(self._gateway.post("/v1/apps/post/invoke", json=body, headers=headers))

    def held(self) -> float:
        """Bytes of all slabs that are in use."""
        return self.executors.total("cornserve_transport_slab_bytes", {"state": "held"})


@pytest.fixture
async def post(store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[Post]:
    yield Post(store, gateway, executors, await store.create(APPS, "post", AppSpec(source=POST)))
    unload_app("post_of_the_tensors_test")


@pytest.fixture
async def served(post: Post) -> Post:
    await post.publish(writers=[await post.writer()], readers=[await post.reader()])
    return post


async def test_tensors_go_from_executor_to_executor(served: Post) -> None:
    response = await served.send("from here", "to there")

    assert response.json()["text"] == "from here to there"
    await until(lambda: served.held() == 0)


async def test_several_may_take_one_tensor(served: Post) -> None:
    assert (await served.send("to all", readers=3)).json()["text"] == "to all | to all | to all"
    await until(lambda: served.held() == 0)


async def test_a_consumer_may_be_recorded_long_after_its_producers_have_ended(served: Post) -> None:
    response = await served.send("early", "late", one_by_one=True)

    assert response.json()["text"] == "early late"
    await until(lambda: served.held() == 0)


async def test_tensors_are_kept_until_all_that_take_them_have_ended(served: Post, executors: EchoExecutors) -> None:
    sent = served.send("slowly", reading=LONG)
    await until(lambda: served.held() > 0)

    sent.cancel()

    await until(lambda: served.held() == 0)
    await until(lambda: executors.running() == 0)


async def test_the_error_of_a_producer_is_that_of_its_consumer(served: Post, executors: EchoExecutors) -> None:
    response = await served.send("a", fail="out of ink", reading=LONG)

    assert response.status_code == 500
    assert response.json()["error"]["message"] == (
        "NoteTask (invocation 0) failed with INTERNAL: RuntimeError: out of ink"
    )
    await until(lambda: executors.running() == 0)


async def test_what_can_never_fit_is_refused_at_once(served: Post) -> None:
    response = await served.send("a", nbytes=SLAB_BYTES)

    assert response.status_code == 400
    assert "limit slab-mib" in response.json()["error"]["message"]
    assert "invocation" not in response.json()["error"]["message"]


async def test_requests_that_fill_the_slab_and_wait_for_more_do_not_block_each_other(served: Post) -> None:
    third = SLAB_BYTES // 7
    sent = [served.send(f"{index}", f"{index}", f"{index}", nbytes=third) for index in range(20)]

    responses = await asyncio.gather(*sent)

    assert [response.status_code for response in responses] == [200] * 20, responses[-1].text
    assert [response.json()["text"] for response in responses] == [f"{i} {i} {i}" for i in range(20)]
    await until(lambda: served.held() == 0)


async def test_what_one_request_has_made_is_made_by_all_replicas(post: Post) -> None:
    writers = [await post.writer() for _ in range(3)]
    await post.publish(writers=writers, readers=[await post.reader()])

    sent = post.send("one", "two", "three", "four", "five", "six", writing=LONG)

    await until(lambda: [post.executors.running(writer) for writer in writers] == [2, 2, 2])
    sent.cancel()
    await until(lambda: post.executors.running() == 0)


async def test_a_reader_that_dies_is_replaced_and_its_tensors_are_still_there(post: Post) -> None:
    writer, doomed, heir = await post.writer(), await post.reader(), await post.reader()
    await post.publish(writers=[writer], readers=[doomed])
    sent = post.send("again", reading=0.1)
    await until(lambda: post.held() > 0)

    await post.executors.kill(doomed)
    await post.publish(writers=[writer], readers=[heir])

    assert (await sent).json()["text"] == "again"
    await until(lambda: post.held() == 0)


async def test_a_writer_that_dies_writing_is_replaced(post: Post) -> None:
    doomed, heir, reader = await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[doomed], readers=[reader])
    sent = post.send("once more", writing=0.3)
    await until(lambda: post.executors.running(doomed) == 1)

    await post.executors.kill(doomed)
    await post.publish(writers=[heir], readers=[reader])

    assert (await sent).json()["text"] == "once more"


async def test_a_writer_that_dies_before_its_note_is_read_is_not_needed_alive(post: Post) -> None:
    """Either its memory outlives it, or the note is written again."""
    doomed, heir, slow = await post.writer(), await post.writer(), await post.writer()
    reader = await post.reader()
    await post.publish(writers=[doomed], readers=[reader])
    sent = post.send("first", "second", one_by_one=True, writing=0.2)
    await until(lambda: post.held() > 0)

    await post.executors.kill(doomed)
    await post.publish(writers=[heir, slow], readers=[reader])

    assert (await sent).json()["text"] == "first second"


async def test_a_request_without_a_living_writer_ends_by_its_deadline(post: Post) -> None:
    doomed, reader = await post.writer(), await post.reader()
    await post.publish(writers=[doomed], readers=[reader])
    sent = post.send("lost", writing=LONG, timeout=1)
    await until(lambda: post.executors.running(doomed) == 1)

    await post.executors.kill(doomed)

    assert (await sent).status_code in (503, 504)
    await until(lambda: post.executors.running(reader) == 0)


async def test_whoever_waits_for_a_writer_that_refuses_hears_of_the_next(post: Post) -> None:
    """The reader was told to wait where nothing will ever be written."""
    refusing, willing, reader = await post.writer(), await post.writer(), await post.reader()
    post.executors.states[refusing].set_phase(pb.PHASE_LOADING)
    await post.publish(writers=[refusing, willing], readers=[reader])

    responses = await asyncio.gather(*(post.send(f"{number}", timeout=20) for number in range(4)))

    assert [response.json()["text"] for response in responses] == ["0", "1", "2", "3"]


async def test_all_that_a_dead_writer_has_made_is_made_again_at_once(post: Post) -> None:
    doomed, heir, slow, reader = await post.writer(), await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[doomed], readers=[reader])
    texts = [f"{number}" for number in range(9)]
    sent = post.send(*texts, one_by_one=True, writing=0.05)
    await until(lambda: post.executors.total("cornserve_executor_invocations_total", {"code": "OK"}, doomed) >= 7)

    await post.executors.kill(doomed)
    await post.publish(writers=[heir, slow], readers=[reader])

    assert (await sent).json()["text"] == " ".join(texts)


async def test_a_reader_starts_anew_as_soon_as_it_is_known_where_its_notes_are_written(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.gateway.request.dispatcher.RETRY_SECONDS", LONG)
    doomed, heir, reader = await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[doomed], readers=[reader])
    sent = post.send("kept", "lost", one_by_one=True, writing=0.5, timeout=30)
    await until(lambda: post.executors.total("cornserve_executor_invocations_total", {"code": "OK"}, doomed) == 1)

    await post.publish(writers=[doomed, heir], readers=[reader])
    await until(lambda: post.executors.states[heir].callers == 1)
    await post.executors.kill(doomed)

    assert (await sent).json()["text"] == "kept lost"


async def test_a_writer_that_is_scaled_away_keeps_its_notes_until_they_are_read(post: Post) -> None:
    leaving, staying, reader = await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[leaving], readers=[reader])
    sent = post.send("kept", reading=1)
    await until(lambda: post.executors.running(reader) == 1 and post.executors.running(leaving) == 0)

    await post.publish(writers=[staying], readers=[reader])
    await until(lambda: post.executors.states[staying].callers == 1)  # the gateway has the new route
    (await post.send("another")).raise_for_status()

    assert (await sent).json()["text"] == "kept"
    retries = "cornserve_executor_invocations_total"
    assert post.executors.total(retries, {"code": "OK"}, staying) == 1, "only the other letter's"

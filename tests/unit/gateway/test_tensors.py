"""Requests whose invocations transfer tensors to each other, including when executors die."""

from __future__ import annotations

import asyncio
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
from cornserve.gateway.request.fan_out import MAX_RUNNING
from cornserve.transport.memory import segment
from cornserve.v1 import executor_pb2 as pb
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import SLAB_BYTES, EchoExecutors
from tests.unit.gateway.published_route import publish_route
from tests.waiting import until

LONG = 1000.0
"""Seconds. An invocation of this duration ends only if it is cancelled or its executor dies."""

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
    sequential: bool = False
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
            if request.sequential:
                assert note.words  # demands a value, so that the next note is recorded after this one is written
        read = ReadRequest(notes=[note.note for note in notes], seconds=request.reading)
        outputs = [self.read.invoke(read) for _ in range(request.readers)]
        return EchoResponse(text=" | ".join(output.text for output in outputs), words_sent=len(notes))

app = App(name="post", paths=[Post()], max_invocations=1000)
"""


class PostApp:
    """The executors of the app. Tests add them, kill them, and publish their endpoints in place of a controller."""

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
        self._record = await publish_route(self._store, self._record, endpoints)
        await until(self._is_served)

    async def _is_served(self) -> bool:
        return (await self._gateway.get("/v1/models/post")).status_code == 200

    def send(self, *texts: str, timeout: float = 60, **fields: Any) -> asyncio.Task[httpx.Response]:
        headers = {"x-request-timeout": str(timeout)}
        body = {"texts": texts, **fields}
        return asyncio.create_task(self._gateway.post("/v1/apps/post/invoke", json=body, headers=headers))

    def held_bytes(self) -> float:
        """Returns the bytes of all slabs that tensors in use occupy."""
        return self.executors.total("cornserve_transport_slab_bytes", {"state": "held"})


@pytest_asyncio.fixture(loop_scope="module")
async def post(store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[PostApp]:
    yield PostApp(store, gateway, executors, await store.create(APPS, "post", AppSpec(source=AppSource(inline=POST))))
    unload_app("post_of_the_tensors_test")


@pytest_asyncio.fixture(loop_scope="module")
async def served(post: PostApp) -> PostApp:
    await post.publish(writers=[await post.writer()], readers=[await post.reader()])
    return post


async def test_a_consumer_reads_the_tensors_of_its_producers(served: PostApp) -> None:
    response = await served.send("from here", "to there")

    assert response.json()["text"] == "from here to there"
    await until(lambda: served.held_bytes() == 0)


async def test_a_tensor_may_have_several_consumers(served: PostApp) -> None:
    assert (await served.send("to all", readers=3)).json()["text"] == "to all | to all | to all"
    await until(lambda: served.held_bytes() == 0)


async def test_a_consumer_may_be_recorded_after_its_producers_have_completed(served: PostApp) -> None:
    response = await served.send("early", "late", sequential=True)

    assert response.json()["text"] == "early late"
    await until(lambda: served.held_bytes() == 0)


async def test_more_producers_than_run_at_a_time_share_their_consumers(served: PostApp) -> None:
    texts = [str(number) for number in range(2 * MAX_RUNNING + 10)]

    response = await served.send(*texts, writing=0.2, readers=3)

    assert response.json()["text"] == " | ".join([" ".join(texts)] * 3)
    await until(lambda: served.held_bytes() == 0)


async def test_cancelling_a_request_releases_its_tensors(served: PostApp, executors: EchoExecutors) -> None:
    sent = served.send("slowly", reading=LONG)
    await until(lambda: served.held_bytes() > 0)

    sent.cancel()

    await until(lambda: served.held_bytes() == 0)
    await until(lambda: executors.running() == 0)


async def test_a_consumer_fails_with_the_error_of_its_producer(served: PostApp, executors: EchoExecutors) -> None:
    response = await served.send("a", fail="out of ink", reading=LONG)

    assert response.status_code == 500
    assert response.json()["error"]["message"] == (
        "NoteTask (invocation 0) failed with INTERNAL: RuntimeError: out of ink"
    )
    await until(lambda: executors.running() == 0)


async def test_a_tensor_larger_than_the_slab_is_rejected_at_once(served: PostApp) -> None:
    response = await served.send("a", nbytes=SLAB_BYTES)

    assert response.status_code == 400
    assert "limit slab-mib" in response.json()["error"]["message"]
    assert "invocation" not in response.json()["error"]["message"]


async def test_a_request_is_refused_while_the_machine_is_full(served: PostApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(segment, "available_memory_bytes", lambda: 0)
        response = await served.send("a")

    assert response.status_code == 429
    assert "cannot create a slab: Cannot allocate memory" in response.json()["error"]["message"]
    assert (await served.send("a")).status_code == 200


async def test_requests_that_fill_the_slab_and_wait_for_space_do_not_deadlock(served: PostApp) -> None:
    third = SLAB_BYTES // 7
    sent = [served.send(f"{index}", f"{index}", f"{index}", nbytes=third) for index in range(20)]

    responses = await asyncio.gather(*sent)

    assert [response.status_code for response in responses] == [200] * 20, responses[-1].text
    assert [response.json()["text"] for response in responses] == [f"{i} {i} {i}" for i in range(20)]
    await until(lambda: served.held_bytes() == 0)


async def test_the_invocations_of_a_request_are_spread_over_all_replicas(post: PostApp) -> None:
    writers = [await post.writer() for _ in range(3)]
    await post.publish(writers=writers, readers=[await post.reader()])

    sent = post.send("one", "two", "three", "four", "five", "six", writing=LONG)

    await until(lambda: [post.executors.running(writer) for writer in writers] == [2, 2, 2])
    sent.cancel()
    await until(lambda: post.executors.running() == 0)


async def test_a_consumer_that_dies_is_retried_with_the_same_tensors(post: PostApp) -> None:
    writer, dying, replacement = await post.writer(), await post.reader(), await post.reader()
    await post.publish(writers=[writer], readers=[dying])
    sent = post.send("again", reading=0.1)
    await until(lambda: post.held_bytes() > 0)

    await post.executors.kill(dying)
    await post.publish(writers=[writer], readers=[replacement])

    assert (await sent).json()["text"] == "again"
    await until(lambda: post.held_bytes() == 0)


async def test_a_producer_that_dies_while_running_is_retried(post: PostApp) -> None:
    dying, replacement, reader = await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[dying], readers=[reader])
    sent = post.send("once more", writing=0.3)
    await until(lambda: post.executors.running(dying) == 1)

    await post.executors.kill(dying)
    await post.publish(writers=[replacement], readers=[reader])

    assert (await sent).json()["text"] == "once more"


async def test_a_request_survives_a_producer_that_dies_before_its_tensor_is_read(post: PostApp) -> None:
    """Either the shared memory outlives the producer, or the note is written again."""
    dying, replacement, slow = await post.writer(), await post.writer(), await post.writer()
    reader = await post.reader()
    await post.publish(writers=[dying], readers=[reader])
    sent = post.send("first", "second", sequential=True, writing=0.2)
    await until(lambda: post.held_bytes() > 0)

    await post.executors.kill(dying)
    await post.publish(writers=[replacement, slow], readers=[reader])

    assert (await sent).json()["text"] == "first second"


async def test_a_request_without_a_producer_ends_at_its_deadline(post: PostApp, clock: LoopClock) -> None:
    dying, reader = await post.writer(), await post.reader()
    await post.publish(writers=[dying], readers=[reader])
    sent = post.send("lost", writing=LONG, timeout=10)
    await until(lambda: post.executors.running(dying) == 1)

    await post.executors.kill(dying)

    assert (await clock.advance_during(sent, step=0.1)).status_code in (503, 504)
    await until(lambda: post.executors.running(reader) == 0)


async def test_consumers_of_an_invocation_that_a_replica_refuses_wait_for_the_next_attempt(post: PostApp) -> None:
    refusing, willing, reader = await post.writer(), await post.writer(), await post.reader()
    post.executors.states[refusing].set_phase(pb.PHASE_LOADING)
    await post.publish(writers=[refusing, willing], readers=[reader])

    responses = await asyncio.gather(*(post.send(f"{number}", timeout=20) for number in range(4)))

    assert [response.json()["text"] for response in responses] == ["0", "1", "2", "3"]


async def test_all_lost_tensors_of_a_dead_producer_are_produced_again_at_once(post: PostApp) -> None:
    dying, replacement, slow, reader = (
        await post.writer(),
        await post.writer(),
        await post.writer(),
        await post.reader(),
    )
    await post.publish(writers=[dying], readers=[reader])
    texts = [f"{number}" for number in range(9)]
    sent = post.send(*texts, sequential=True, writing=0.05)
    await until(lambda: post.executors.total("cornserve_executor_invocations_total", {"code": "OK"}, dying) >= 7)

    await post.executors.kill(dying)
    await post.publish(writers=[replacement, slow], readers=[reader])

    assert (await sent).json()["text"] == " ".join(texts)


async def test_a_consumer_is_retried_as_soon_as_its_producers_have_replicas(
    post: PostApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.gateway.request.placement.PLACEMENT_SECONDS", LONG)
    dying, replacement, reader = await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[dying], readers=[reader])
    sent = post.send("kept", "lost", sequential=True, writing=0.5, timeout=30)
    await until(lambda: post.executors.total("cornserve_executor_invocations_total", {"code": "OK"}, dying) == 1)

    await post.publish(writers=[dying, replacement], readers=[reader])
    await until(lambda: post.executors.states[replacement].callers == 1)
    await post.executors.kill(dying)

    assert (await sent).json()["text"] == "kept lost"


async def test_a_draining_producer_retains_its_tensors_until_they_are_read(post: PostApp, clock: LoopClock) -> None:
    leaving, staying, reader = await post.writer(), await post.writer(), await post.reader()
    await post.publish(writers=[leaving], readers=[reader])
    sent = post.send("kept", reading=10)
    await until(lambda: post.executors.running(reader) == 1 and post.executors.running(leaving) == 0)

    await post.publish(writers=[staying], readers=[reader])
    await until(lambda: post.executors.states[staying].callers == 1)  # the gateway uses the new route
    (await post.send("another")).raise_for_status()
    assert not sent.done()

    assert (await clock.advance_during(sent, step=0.1)).json()["text"] == "kept"
    completed = "cornserve_executor_invocations_total"
    assert post.executors.total(completed, {"code": "OK"}, staying) == 1, "the first request's note was written again"

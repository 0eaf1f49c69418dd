"""Invocations with late binding wait for capacity on a replica, in the order in which their requests arrived."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.app.settings import AppPolicies
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.store.base import APPS, Store
from cornserve.gateway.request import invocation_queues
from cornserve_echo.note_executors import ReadExecutor
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.test_tensors import LONG, POST, PostApp
from tests.waiting import until

WRITTEN = "cornserve_executor_invocations_total"


class LatePost:
    """An app with a writer, and a reader that reads one note at a time."""

    def __init__(self, app: PostApp, writer: str, reader: str) -> None:
        self.app = app
        self.writer = writer
        self.reader = reader

    async def write(self, text: str, timeout: float = 60, *, reading: float = 0) -> asyncio.Task[httpx.Response]:
        """Sends a request, and waits until its note is written."""
        before = self._written
        sent = self.app.send(text, timeout=timeout, reading=reading)
        await until(lambda: self._written > before)
        return sent

    async def read_long(self) -> asyncio.Task[httpx.Response]:
        """Sends a request that occupies the reader."""
        sent = await self.write("long", reading=LONG)
        await until(lambda: self.running == 1)
        return sent

    @property
    def _written(self) -> float:
        return self.app.executors.total(WRITTEN, {"code": "OK"}, self.writer)

    @property
    def running(self) -> int:
        return self.app.executors.running(self.reader)


@pytest_asyncio.fixture(loop_scope="module")
async def late(
    store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LatePost]:
    monkeypatch.setattr(ReadExecutor, "max_running", 1)
    spec = AppSpec(source=AppSource(inline=POST), policies=AppPolicies(binding="late"))
    app = PostApp(store, gateway, executors, await store.create(APPS, "post", spec))
    writer, reader = await app.writer(), await app.reader()
    await app.publish(writers=[writer], readers=[reader])
    yield LatePost(app, writer, reader)
    unload_app("post_of_the_tensors_test")


async def queued_invocations(gateway: httpx.AsyncClient) -> float:
    metrics = (await gateway.get("/metrics")).text
    return sum(map(float, re.findall(r"^cornserve_gateway_queued_invocations\{.*\} (\S+)$", metrics, re.MULTILINE)))


async def test_invocations_start_in_the_order_of_arrival_when_the_replica_has_capacity(
    late: LatePost, gateway: httpx.AsyncClient
) -> None:
    first, ended = await late.read_long(), list[str]()
    others = []
    for text in "abc":
        sent = await late.write(text)
        sent.add_done_callback(lambda done: ended.append(done.result().json()["text"]))
        others.append(sent)
    assert late.running == 1
    assert ended == []
    assert await queued_invocations(gateway) == 3

    first.cancel()
    await asyncio.gather(*others)

    assert ended == ["a", "b", "c"]
    assert await queued_invocations(gateway) == 0
    await until(lambda: late.app.held_bytes() == 0)


async def test_a_request_is_refused_if_too_many_wait(late: LatePost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocation_queues, "MAX_QUEUED", 2)
    first = await late.read_long()
    queued = [await late.write("a"), await late.write("b")]

    refused = await (await late.write("c"))

    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "resource_exhausted"
    first.cancel()
    assert [(await sent).json()["text"] for sent in queued] == ["a", "b"]
    await until(lambda: late.app.held_bytes() == 0)


async def test_requests_that_leave_give_up_their_turns(late: LatePost, clock: LoopClock) -> None:
    first = await late.read_long()
    cancelled, expired, last = await late.write("a"), await late.write("b", timeout=5), await late.write("c")

    cancelled.cancel()
    clock.advance(6)
    response = await expired
    first.cancel()

    assert response.status_code == 504
    assert (await last).json()["text"] == "c"
    await until(lambda: late.app.held_bytes() == 0)


async def test_invocations_that_wait_start_at_the_replacement_of_a_dead_replica(late: LatePost) -> None:
    first = await late.read_long()
    queued = await late.write("a")
    replacement = await late.app.reader()

    await late.app.executors.kill(late.reader)
    first.cancel()
    await late.app.publish(writers=[late.writer], readers=[replacement])

    assert (await queued).json()["text"] == "a"

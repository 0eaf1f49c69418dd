"""Requests whose executors die, refuse invocations, or exceed the deadline."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from pydantic_core import to_json

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.record import AppStatus, AppView, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.store.base import APPS, AppRecord, Store
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.limits import Limits
from cornserve.task.spec import ExecutorSpec
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo import EchoRequest, EchoResponse
from cornserve_echo.executor import EchoExecutor
from cornserve_executors.base import HandedOverError, InvocationContext
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.published_route import publish_route, publish_status
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

code_may_take_long = with_gateway_options(GatewayOptions(limits=Limits(run_seconds=3600)))
"""The options of tests that advance the clock while code of the app may run, which takes real time."""

LONG = 1000.0
"""Seconds. An invocation of this duration ends only if it is cancelled or its executor dies."""


WORDS = [f"word{number}" for number in range(20)]

EACH_WORD = """
from cornserve import App, InvocationError, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class EachWord(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def echo_word(self, word: str, seconds: float) -> EchoResponse:
        return self.echo.invoke(EchoRequest(text=word, seconds=seconds))

    def invoke(self, request: EchoRequest) -> EchoResponse:
        outputs = [self.echo_word(word, request.seconds) for word in request.text.split()]
        return EchoResponse(text=" ".join(output.text for output in outputs), words_sent=len(outputs))

app = App(name="echo", paths=[EachWord()])
"""

CATCHING = (
    EACH_WORD.replace(
        'text=" ".join(output.text for output in outputs)',
        'text=" ".join(map(self.text_of, outputs))',
    )
    .replace(
        "    def invoke(",
        """    def text_of(self, output: EchoResponse) -> str:
        try:
            return output.text
        except InvocationError as error:
            return error.code

    def invoke(""",
    )
    .replace(
        "outputs = [self.echo_word(word, request.seconds) for word in request.text.split()]",
        """outputs = []
        for word in request.text.split():
            outputs.append(self.echo_word(word, request.seconds))
            self.text_of(outputs[-1])""",
    )
)


class EchoGroup:
    """The executors of an app. Tests add them, kill them, and publish their endpoints in place of a controller."""

    def __init__(self, store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors, record: AppRecord) -> None:
        self._store = store
        self._gateway = gateway
        self._executors = executors
        self._record = record
        self._app: App = load_app("echo", record.spec, "echo_of_the_failures_test")
        ((self._key, self._spec),) = self._app.executor_specs().items()

    async def add(self, **settings: object) -> str:
        config = self._spec.config | settings
        return await self._executors.replica(ExecutorSpec(executor=self._spec.executor, config=config))  # type: ignore[arg-type]

    async def publish(self, *endpoints: str) -> None:
        self._record = await publish_route(self._store, self._record, {self._key: endpoints})
        await until(self._is_served)

    async def publish_failed(self, message: str) -> None:
        """Publishes that the only replica has failed."""
        failed = ReplicaStatus(id="replica-failed", state=ReplicaState.FAILED, message=message)
        groups = [GroupStatus(key=self._key, wanted=1, replicas=[failed])]
        status = AppStatus(phase=Phase.STARTING, generation=1, groups=groups)
        self._record = await publish_status(self._store, self._record, status)

    async def hide(self) -> None:
        """Publishes a status without the executors of the app, which still needs them."""
        self._record = await publish_status(self._store, self._record, AppStatus(phase=Phase.SERVING, generation=1))

        async def is_hidden() -> bool:
            return not (await self.view()).status.groups

        await until(is_hidden)

    async def view(self) -> AppView:
        return AppView.model_validate((await self._gateway.get("/admin/v1/apps/echo")).json())

    async def publish_other_version(self, *endpoints: str) -> None:
        """Replaces the version with one that has another executor group."""
        self._record = await publish_route(self._store, self._record, {"another-group": endpoints})

    async def publish_restarted(self, *endpoints: str, key: str = "restarted") -> None:
        """Replaces the executor group with another one that runs the same executor."""
        groups = {self._key: key}
        self._record = await publish_route(self._store, self._record, {key: endpoints}, executors=groups)

    async def _is_served(self) -> bool:
        return (await self._gateway.get("/v1/models/echo")).status_code == 200

    async def is_in_use(self) -> bool:
        """Whether the gateway handles a request to the app."""
        metrics = (await self._gateway.get("/metrics")).text
        return 'cornserve_gateway_requests_running{app="echo"} 1.0' in metrics

    async def kill(self, endpoint: str) -> None:
        await self._executors.kill(endpoint)

    def running(self, endpoint: str) -> int:
        return self._executors.running(endpoint)

    def is_connected(self, endpoint: str) -> bool:
        """Whether the gateway may still send invocations to the replica."""
        return self._executors.states[endpoint].callers > 0

    async def ended(self, endpoint: str) -> dict[str, int]:
        """Returns the number of ended invocations of the replica, by code."""
        metrics = (await self._gateway.get("/metrics")).text
        pattern = (
            rf'cornserve_gateway_invocations_total{{.*code="(\w+)".*replica="replica-{re.escape(endpoint)}".*}} (.*)'
        )
        return {code: int(float(count)) for code, count in re.findall(pattern, metrics)}

    async def retries(self) -> int:
        metrics = (await self._gateway.get("/metrics")).text
        (count,) = re.findall(r'cornserve_gateway_retries_total{app="echo"} (.*)', metrics)
        return int(float(count))

    def held_bytes(self, endpoint: str) -> float:
        """The memory of the tensors that the replica keeps."""
        return self._executors.total("cornserve_transport_slab_bytes", {"state": "held"}, endpoint)

    def refuse(self, endpoint: str) -> None:
        self._executors.states[endpoint].set_phase(pb.PHASE_LOADING)

    def send(self, text: str, *, timeout: float = 60, **fields: Any) -> asyncio.Task[httpx.Response]:
        return self._post({"text": text, **fields}, {"x-request-timeout": str(timeout)})

    def stream(self, text: str, *, timeout: float = 60, **fields: Any) -> StreamingRequest:
        body, headers = {"text": text, **fields}, {"x-request-timeout": str(timeout), "accept": "text/event-stream"}
        return StreamingRequest(self._gateway, body, headers)

    def _post(self, body: dict[str, Any], headers: dict[str, str]) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(self._gateway.post("/v1/apps/echo/invoke", json=body, headers=headers))


class StreamingRequest:
    """A streaming request, and the events received so far."""

    def __init__(self, gateway: httpx.AsyncClient, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.events: list[tuple[str, Any]] = []
        """Name and data of each event."""
        self._gateway = gateway
        self._reading = asyncio.create_task(self._read(body, headers))

    async def _read(self, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        async with self._gateway.stream("POST", "/v1/apps/echo/invoke", json=body, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
                return response
            name = ""
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    self.events.append((name, json.loads(value)))
            return response

    @property
    def items(self) -> list[str]:
        return [event["item"] for name, event in self.events if name == "item"]

    async def first_item(self) -> None:
        await until(lambda: bool(self.items))

    async def ended(self) -> httpx.Response:
        return await self._reading

    async def cancel(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


GroupOf = Callable[[str], Awaitable[EchoGroup]]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The timeouts of the waits for a replica, as they begin."""
    waits: list[float] = []
    wait_for_change = ReplicaPool.wait_for_change

    async def record(pool: ReplicaPool, timeout: float) -> None:
        waits.append(timeout)
        await wait_for_change(pool, timeout)

    monkeypatch.setattr(ReplicaPool, "wait_for_change", record)
    return waits


@pytest_asyncio.fixture(loop_scope="module")
async def group_of(store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[GroupOf]:
    async def create(source: str) -> EchoGroup:
        return EchoGroup(
            store, gateway, executors, await store.create(APPS, "echo", AppSpec(source=AppSource(inline=source)))
        )

    yield create
    unload_app("echo_of_the_failures_test")


@pytest_asyncio.fixture(loop_scope="module")
async def group(group_of: GroupOf) -> EchoGroup:
    return await group_of(ECHO)


@pytest_asyncio.fixture(loop_scope="module")
async def moved_stream(group: EchoGroup, monkeypatch: pytest.MonkeyPatch) -> StreamingRequest:
    """A stream of `WORDS` that a restart has moved to another executor. Both executors have died since."""
    monkeypatch.setattr(EchoExecutor, "model_digest", "model")
    leaving, dying = await group.add(), await group.add()
    await group.publish(leaving)
    stream = group.stream(" ".join(WORDS), seconds=10)
    await stream.first_item()
    await group.publish_restarted(dying)
    await until(lambda: group.running(dying) == 1)
    await group.kill(leaving)
    await group.kill(dying)
    return stream


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


async def test_a_request_without_output_is_retried_on_another_replica(group: EchoGroup, clock: LoopClock) -> None:
    dying, living = await group.add(), await group.add()
    await group.publish(dying)
    request = group.send("a b", seconds=1)
    await until(lambda: group.running(dying) == 1)

    await group.publish(dying, living)
    await group.kill(dying)

    await until(lambda: group.running(living) == 1)
    assert (await clock.advance_during(request, step=0.1)).json()["text"] == "a b"


async def test_a_request_waits_for_the_replacement_of_the_last_replica(group: EchoGroup, clock: LoopClock) -> None:
    dying, living = await group.add(), await group.add()
    await group.publish(dying)
    request = group.send("a b", seconds=1)
    await until(lambda: group.running(dying) == 1)

    await group.kill(dying)
    await group.publish(living)

    await until(lambda: group.running(living) == 1)
    assert (await clock.advance_during(request, step=0.1)).json()["text"] == "a b"


async def test_a_request_waits_for_the_first_replica(group: EchoGroup) -> None:
    await group.publish()
    request = group.send("a b")

    await group.publish(await group.add())

    assert (await request).json()["text"] == "a b"


@code_may_take_long
async def test_requests_fail_early_when_no_replica_can_be_reached_and_the_controller_does_not_replace_them(
    group: EchoGroup, waits: list[float], clock: LoopClock
) -> None:
    dying = await group.add()
    await group.publish(dying)
    assert (await group.send("a")).status_code == 200
    await group.kill(dying)

    for _ in range(2):
        waits.clear()
        sent = group.send("a", timeout=500)
        await until(lambda sent=sent: bool(waits) or sent.done())  # type: ignore[misc]
        response = await clock.advance_during(sent, step=0.1)
        assert (response.status_code, error_of(response)["code"]) == (503, "unavailable")
        assert "none of its 1 executors can be reached" in error_of(response)["message"]

    await group.publish(await group.add())
    assert (await group.send("a")).status_code == 200


async def test_requests_use_executors_that_cannot_be_found_any_more(group: EchoGroup) -> None:
    await group.publish(await group.add())
    await group.hide()

    assert (await group.send("a")).status_code == 200


@code_may_take_long
async def test_requests_are_not_sent_again_for_executors_that_cannot_be_found(
    group: EchoGroup, waits: list[float], clock: LoopClock
) -> None:
    lost = await group.add()
    await group.publish(lost)
    await group.hide()
    await group.kill(lost)

    for _ in range(2):
        waits.clear()
        sent = group.send("a", timeout=500)
        await until(lambda sent=sent: bool(waits) or sent.done())  # type: ignore[misc]
        response = await clock.advance_during(sent, step=0.1)
        assert (response.status_code, error_of(response)["code"]) == (503, "no_endpoints")
        assert "no endpoint of the executor" in error_of(response)["message"]
        assert response.headers["x-should-retry"] == "false"
        assert "retry-after" not in response.headers

    await group.publish(await group.add())
    assert (await group.send("a")).status_code == 200


@code_may_take_long
async def test_requests_fail_early_with_the_reason_when_all_replicas_have_failed(
    group: EchoGroup, waits: list[float], clock: LoopClock
) -> None:
    await group.publish(await group.add())
    await group.publish_failed("cannot start: No space left on device")
    while True:
        sent = group.send("a", timeout=500)
        await until(lambda sent=sent: bool(waits) or sent.done())  # type: ignore[misc]
        if waits:  # The gateway has read the new status.
            break

    response = await clock.advance_during(sent, step=0.1)

    assert response.status_code == 503
    assert "its executors have failed: cannot start: No space left on device" in error_of(response)["message"]


async def test_a_replica_that_the_gateway_cannot_reach_is_not_shown_as_ready(group: EchoGroup) -> None:
    dying, living = await group.add(), await group.add()
    await group.publish(dying, living)
    assert (await group.view()).status.groups[0].ready == 2

    async def is_shown_as_lost(count: int) -> bool:
        return (await group.view()).status.groups[0].ready == 2 - count

    await group.kill(dying)
    await until(lambda: is_shown_as_lost(1))
    view = await group.view()
    assert view.phase is Phase.SERVING
    assert view.status.groups[0].replicas[0].message == "the gateway cannot reach it"
    await group.kill(living)
    await until(lambda: is_shown_as_lost(2))
    view = await group.view()
    assert view.phase is Phase.STARTING
    assert "the gateway cannot reach any executor of" in view.status.message


async def test_a_request_that_kills_two_executors_fails_and_must_not_be_retried(group: EchoGroup) -> None:
    replicas = [await group.add() for _ in range(3)]
    request = None
    for replica in replicas[:2]:
        await group.publish(replica)
        request = request or group.send("a", seconds=LONG)
        await until(lambda replica=replica: group.running(replica) == 1)  # type: ignore[misc]
        await group.kill(replica)
    await group.publish(replicas[2])

    assert request is not None
    response = await request
    assert (response.status_code, error_of(response)["code"]) == (500, "executor_died")
    assert response.headers["x-should-retry"] == "false"
    assert group.running(replicas[2]) == 0


async def test_a_death_under_several_invocations_of_a_request_counts_once(group_of: GroupOf, clock: LoopClock) -> None:
    group = await group_of(EACH_WORD)
    dying, living = await group.add(), await group.add()
    await group.publish(dying)
    request = group.send("a b c d", seconds=1)
    await until(lambda: group.running(dying) == 4)

    await group.publish(dying, living)
    await group.kill(dying)

    await until(lambda: group.running(living) == 4)
    assert (await clock.advance_during(request, step=0.1)).json()["text"] == "a b c d"


async def test_a_task_that_catches_the_errors_of_dead_executors_kills_no_more(group_of: GroupOf) -> None:
    group = await group_of(CATCHING)
    replicas = [await group.add() for _ in range(3)]
    request = None
    for replica in replicas[:2]:
        await group.publish(replica)
        request = request or group.send("a b c", seconds=LONG)
        await until(lambda replica=replica: group.running(replica) == 1)  # type: ignore[misc]
        await group.kill(replica)
    await group.publish(replicas[2])

    assert request is not None
    assert (await request).json()["text"] == "ABORTED ABORTED ABORTED"
    assert group.running(replicas[2]) == 0


async def test_aborted_invocations_remain_in_the_metrics_after_their_replica_is_removed(
    group: EchoGroup, gateway: httpx.AsyncClient
) -> None:
    dying, living = await group.add(), await group.add()
    await group.publish(dying)
    request = group.send("a", seconds=LONG)
    await until(lambda: group.running(dying) == 1)
    await group.publish(dying, living)
    await group.kill(dying)
    await until(lambda: group.running(living) == 1)

    async def series_of_replica() -> list[str]:
        lines = (await gateway.get("/metrics")).text.splitlines()
        return [line for line in lines if f'replica="replica-{dying}"' in line]

    async def is_removed() -> bool:
        return not any(line.startswith("cornserve_gateway_invocations_running{") for line in await series_of_replica())

    await group.publish(living)
    await until(is_removed)

    [aborted] = [line for line in await series_of_replica() if 'code="ABORTED"' in line]
    assert aborted.startswith("cornserve_gateway_invocations_total{")
    assert aborted.endswith(" 1.0")
    request.cancel()


async def test_a_request_that_started_with_a_replaced_version_fails_at_once_when_its_executor_dies(
    group: EchoGroup, store: Store
) -> None:
    dying = await group.add()
    await group.publish(dying)
    request = group.send("a", seconds=LONG)
    await until(lambda: group.running(dying) == 1)

    await group.publish_other_version(await group.add())
    await group.kill(dying)

    response = await request
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "has been replaced: send it again" in error_of(response)["message"]


async def test_a_request_that_waits_for_a_replaced_version_fails_at_once(group: EchoGroup) -> None:
    await group.publish()
    request = group.send("a")
    await until(group.is_in_use)
    await group.publish_other_version(await group.add())

    response = await request
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "has been replaced: send it again" in error_of(response)["message"]


@code_may_take_long
async def test_a_started_stream_resumes_exactly_if_its_task_allows_it(group: EchoGroup, clock: LoopClock) -> None:
    dying, living = await group.add(), await group.add()
    await group.publish(dying)
    words = [f"word{n}" for n in range(40)]
    stream = group.stream(" ".join(words), seconds=10)
    await stream.first_item()

    await group.publish(dying, living)
    await group.kill(dying)

    await clock.advance_during(stream.ended(), step=0.25)
    assert stream.items == words
    assert stream.events[-1] == ("result", {"words": None, "text": " ".join(words), "words_sent": 40})


@code_may_take_long
async def test_a_replica_that_leaves_hands_its_streams_over(group: EchoGroup, clock: LoopClock) -> None:
    leaving, other = await group.add(), await group.add()
    await group.publish(leaving)
    words = [f"word{n}" for n in range(20)]
    streams = [group.stream(" ".join(words), seconds=10) for _ in range(3)]
    for stream in streams:
        await stream.first_item()

    await group.publish(other)
    await until(lambda: group.running(other) == 3)

    assert group.running(leaving) == 0
    await until(lambda: not group.is_connected(leaving))  # The executor can exit.
    for stream in streams:
        await clock.advance_during(stream.ended(), step=0.25)
        assert stream.items == words
    assert await group.ended(leaving) == {"HANDED_OVER": 3}


@pytest.mark.parametrize(
    ("old", "new", "moves"), [("model", "model", True), ("model", "other", False), ("", "", False)]
)
@code_may_take_long
async def test_a_restart_hands_streams_over_to_executors_with_the_same_model(
    group: EchoGroup, clock: LoopClock, monkeypatch: pytest.MonkeyPatch, old: str, new: str, moves: bool
) -> None:
    monkeypatch.setattr(EchoExecutor, "model_digest", old)
    leaving = await group.add()
    await group.publish(leaving)
    words = [f"word{n}" for n in range(20)]
    streams = [group.stream(" ".join(words), seconds=10) for _ in range(3)]
    for stream in streams:
        await stream.first_item()

    monkeypatch.setattr(EchoExecutor, "model_digest", new)
    other = await group.add()
    await group.publish_restarted(other)
    await until(lambda: group.is_connected(other))

    if moves:
        await until(lambda: group.running(other) == 3)
        await until(lambda: not group.is_connected(leaving))  # The executor can exit.
    assert (await group.view()).left_invocations == (0 if moves else 3)
    assert (await group.view()).moved_streams == (3 if moves else 0)
    for stream in streams:
        await clock.advance_during(stream.ended(), step=0.25)
        assert stream.items == words
    assert await group.ended(leaving) == {"HANDED_OVER" if moves else "OK": 3}
    assert (await group.view()).left_invocations == 0


@pytest.mark.parametrize("key", ["a-restarted", "restarted"])
@code_may_take_long
async def test_a_stream_survives_two_restarts(
    group: EchoGroup, clock: LoopClock, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The second returns to the first executor group, whose key sorts between both others."""
    monkeypatch.setattr(EchoExecutor, "model_digest", "model")
    replicas = [await group.add() for _ in range(3)]
    await group.publish(replicas[0])
    stream = group.stream(" ".join(WORDS), seconds=10)
    await stream.first_item()

    await group.publish_restarted(replicas[1], key=key)
    await until(lambda: group.running(replicas[1]) == 1)
    await group.publish(replicas[2])
    await until(lambda: group.running(replicas[2]) == 1)

    await clock.advance_during(stream.ended(), step=0.25)
    assert stream.items == WORDS


@code_may_take_long
async def test_a_stream_that_a_restart_has_moved_survives_the_death_of_the_only_new_executor(
    group: EchoGroup, moved_stream: StreamingRequest, clock: LoopClock
) -> None:
    replacement = await group.add()

    await group.publish_restarted(replacement)

    await clock.advance_during(moved_stream.ended(), step=0.25)
    assert moved_stream.items == WORDS
    assert await group.ended(replacement) == {"OK": 1}


@code_may_take_long
async def test_a_stream_fails_if_all_executors_that_replace_its_dead_one_have_another_model(
    group: EchoGroup, moved_stream: StreamingRequest, clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoExecutor, "model_digest", "other")

    await group.publish_restarted(await group.add())

    await clock.advance_during(moved_stream.ended(), step=0.25)
    name, data = moved_stream.events[-1]
    assert name == "error"
    assert "has been replaced: send it again" in data["error"]["message"]


@code_may_take_long
async def test_a_stream_may_be_handed_over_several_times(group: EchoGroup, clock: LoopClock) -> None:
    replicas = [await group.add() for _ in range(2)]
    await group.publish(replicas[0])
    words = [f"word{n}" for n in range(40)]
    stream = group.stream(" ".join(words), seconds=10)
    await stream.first_item()

    for replica in (replicas[1], *replicas):
        await group.publish(replica)
        await until(lambda replica=replica: group.running(replica) == 1)  # type: ignore[misc]

    await clock.advance_during(stream.ended(), step=0.25)
    assert stream.items == words


@pytest.mark.parametrize("queue", [1])
@code_may_take_long
async def test_a_stream_waits_for_a_full_replica_that_takes_it_over(group: EchoGroup, clock: LoopClock) -> None:
    leaving, full = await group.add(), await group.add()
    await group.publish(full)
    other = group.send("a", seconds=10)
    await until(lambda: group.running(full) == 1)
    await group.publish(leaving)
    words = [f"word{n}" for n in range(40)]
    stream = group.stream(" ".join(words), seconds=10)
    await stream.first_item()

    await group.publish(full)

    await clock.advance_during(stream.ended(), step=0.25)
    assert stream.items == words
    assert await group.ended(leaving) == {"HANDED_OVER": 1}
    assert (await other).json()["text"] == "a"


@pytest.mark.parametrize("streams", [False, True])
async def test_requests_that_cannot_be_handed_over_end_on_a_replica_that_leaves(
    group: EchoGroup, clock: LoopClock, streams: bool
) -> None:
    leaving, other = await group.add(), await group.add()
    await group.publish(leaving)
    if streams:
        request = asyncio.create_task(group.stream("a", seconds=5, continues=False).ended())
    else:
        request = group.send("a", seconds=5)
    await until(lambda: group.running(leaving) == 1)

    await group.publish(other)
    clock.advance(5)

    assert (await request).status_code == 200
    assert await group.ended(leaving) == {"OK": 1}


async def test_streams_end_on_a_replica_that_leaves_without_another(group: EchoGroup, clock: LoopClock) -> None:
    leaving = await group.add()
    await group.publish(leaving)
    stream = group.stream("a", seconds=5)
    await until(lambda: group.running(leaving) == 1)

    await group.publish()
    clock.advance(5)
    await stream.ended()

    assert stream.items == ["a"]


class StateKeeper:
    """Echoes words, and keeps the number of those that were sent in the state of a stream that is handed over.

    A replica continues when `may_continue` is set.
    """

    def __init__(self) -> None:
        self.may_continue = asyncio.Event()
        self.waits = 0
        """The number of replicas that have waited for it."""
        self.received: list[bytes | None] = []
        self.releases = True
        """Whether a replica gives the state up before its invocation ends."""

    async def invoke(self, request: EchoRequest, context: InvocationContext) -> EchoResponse:
        words, sent = request.text.split(" "), len(context.delivered.get("words", []))
        if sent:
            self.waits += 1
            await self.may_continue.wait()
            state = await context.receive_state()
            self.received.append(None if state is None else bytes(state.view))
            if state is not None and self.releases:
                await context.release_state()
        for number, word in enumerate(words[sent:], sent + 1):
            await asyncio.sleep(request.seconds / len(words))
            await context.send("words", to_json(word))
            if not sent:
                await until(context.wants_hand_over)
            if context.wants_hand_over():
                await self._publish(context, str(number).encode())
                raise HandedOverError
        return EchoResponse(text=request.text, words_sent=len(words))

    async def _publish(self, context: InvocationContext, state: bytes) -> None:
        slot = await context.allocate_state(len(state))
        assert slot is not None
        slot.buffer[:] = state
        slot.publish("uint8", (len(state),))


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> StateKeeper:
    """Replaces the executors."""
    keeper = StateKeeper()

    async def invoke(_: EchoExecutor, request: EchoRequest, context: InvocationContext) -> EchoResponse:
        return await keeper.invoke(request, context)

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)
    return keeper


async def handed_over(group: EchoGroup, keeper: StateKeeper) -> tuple[StreamingRequest, str, str]:
    """Returns a stream of 20 words that the first replica has handed over, and both replicas."""
    leaving, other = await group.add(), await group.add()
    await group.publish(leaving)
    stream = group.stream(" ".join(WORDS), seconds=1)
    await stream.first_item()
    await group.publish(other)
    await until(lambda: keeper.waits == 1)
    return stream, leaving, other


async def test_the_state_of_a_stream_that_is_handed_over_is_received(group: EchoGroup, keeper: StateKeeper) -> None:
    stream, leaving, other = await handed_over(group, keeper)
    sent = len(stream.items)
    assert group.is_connected(leaving)
    assert group.held_bytes(leaving) > 0

    keeper.may_continue.set()
    await until(lambda: not group.is_connected(leaving))  # The executor can exit.

    assert group.running(other) == 1
    assert group.held_bytes(leaving) == 0
    await stream.ended()
    assert stream.items == WORDS
    assert keeper.received == [str(sent).encode()]


async def test_a_state_that_is_not_taken_is_kept_until_the_stream_ends(group: EchoGroup, keeper: StateKeeper) -> None:
    keeper.releases = False
    stream, leaving, _ = await handed_over(group, keeper)

    keeper.may_continue.set()
    await until(lambda: keeper.received != [])
    assert group.is_connected(leaving)

    await stream.ended()
    await until(lambda: not group.is_connected(leaving))
    assert stream.items == WORDS
    assert group.held_bytes(leaving) == 0


async def test_a_stream_continues_without_the_state_of_a_replica_that_has_died(
    group: EchoGroup, keeper: StateKeeper
) -> None:
    stream, leaving, _ = await handed_over(group, keeper)

    await group.kill(leaving)
    keeper.may_continue.set()
    await stream.ended()

    assert stream.items == WORDS
    assert keeper.received == [None]


async def test_another_replica_gets_the_state_if_the_first_one_dies(group: EchoGroup, keeper: StateKeeper) -> None:
    stream, _, dying = await handed_over(group, keeper)
    third = await group.add()
    await group.publish(dying, third)

    await group.kill(dying)
    await until(lambda: keeper.waits == 2)
    keeper.may_continue.set()
    await stream.ended()

    assert stream.items == WORDS
    assert keeper.received[-1] is not None


async def handed_over_again(group: EchoGroup, keeper: StateKeeper) -> tuple[StreamingRequest, str, str]:
    """Returns a stream that two replicas have handed over, and both."""
    stream, first, second = await handed_over(group, keeper)
    keeper.may_continue.set()
    sent = len(stream.items)
    await until(lambda: len(stream.items) > sent)
    await group.publish(await group.add())
    await until(lambda: len(keeper.received) == 2)
    return stream, first, second


async def test_a_stream_that_is_handed_over_again_has_a_new_state(group: EchoGroup, keeper: StateKeeper) -> None:
    stream, first, second = await handed_over_again(group, keeper)

    await until(lambda: not (group.is_connected(first) or group.is_connected(second)))

    assert group.held_bytes(first) == group.held_bytes(second) == 0
    await stream.ended()
    assert stream.items == WORDS
    states = [int(state) for state in keeper.received if state is not None]
    assert states == sorted({*states})
    assert len(states) == 2


async def test_a_second_hand_over_releases_a_state_that_is_not_taken(group: EchoGroup, keeper: StateKeeper) -> None:
    keeper.releases = False
    stream, first, second = await handed_over_again(group, keeper)

    await until(lambda: not group.is_connected(first))

    assert group.held_bytes(first) == 0
    assert group.is_connected(second)
    await stream.ended()
    assert stream.items == WORDS
    await until(lambda: not group.is_connected(second))
    assert group.held_bytes(second) == 0


async def test_a_stream_continues_after_a_second_hand_over_whose_replica_dies(
    group: EchoGroup, keeper: StateKeeper
) -> None:
    stream, _, second = await handed_over(group, keeper)
    keeper.may_continue.set()
    sent = len(stream.items)
    await until(lambda: len(stream.items) > sent)
    keeper.may_continue.clear()
    await group.publish(await group.add())
    await until(lambda: keeper.waits == 2)

    await group.kill(second)
    keeper.may_continue.set()
    await stream.ended()

    assert stream.items == WORDS
    assert keeper.received[-1] is None


async def test_the_state_of_a_cancelled_stream_is_released(group: EchoGroup, keeper: StateKeeper) -> None:
    stream, leaving, _ = await handed_over(group, keeper)

    await stream.cancel()

    await until(lambda: not group.is_connected(leaving))
    assert group.held_bytes(leaving) == 0


async def test_a_retry_is_counted_if_a_replica_that_leaves_dies_first(group: EchoGroup, clock: LoopClock) -> None:
    leaving, other = await group.add(), await group.add()
    await group.publish(leaving)
    stream = group.stream("a b", seconds=10)
    await until(lambda: group.running(leaving) == 1)
    clock.advance(5)
    await stream.first_item()
    before = await group.retries()

    await group.publish(other)
    await group.kill(leaving)
    await until(lambda: group.running(other) == 1)
    clock.advance(10)
    await stream.ended()

    assert stream.items == ["a", "b"]
    assert await group.retries() == before + 1


async def test_a_started_stream_that_cannot_resume_ends_with_an_error_event(group: EchoGroup) -> None:
    dying, living = await group.add(), await group.add()
    await group.publish(dying)
    stream = group.stream("a " * 1000, seconds=100, continues=False)
    await stream.first_item()

    await group.publish(dying, living)
    await group.kill(dying)

    await stream.ended()
    name, event = stream.events[-1]
    assert (name, event["error"]["code"]) == ("error", "executor_died")
    assert group.running(living) == 0


async def test_invocations_that_a_replica_refuses_are_sent_to_another(group: EchoGroup) -> None:
    draining, living = await group.add(), await group.add()
    group.refuse(draining)
    await group.publish(draining, living)

    responses = await asyncio.gather(*(group.send(str(n)) for n in range(10)))

    assert [response.json()["text"] for response in responses] == [str(n) for n in range(10)]


async def test_dead_replicas_are_skipped(group: EchoGroup) -> None:
    dead, living = await group.add(), await group.add()
    await group.publish(dead, living)
    await group.kill(dead)

    responses = await asyncio.gather(*(group.send(str(n)) for n in range(10)))

    assert [response.status_code for response in responses] == [200] * 10


async def test_the_deadline_also_ends_the_invocation_at_the_executor(group: EchoGroup, clock: LoopClock) -> None:
    replica = await group.add()
    await group.publish(replica)

    requests = (
        group.send("a", seconds=LONG, timeout=10),
        asyncio.create_task(group.stream("a", seconds=LONG, timeout=10).ended()),
    )
    await until(lambda: group.running(replica) == 2)
    clock.advance(10)

    for response in await asyncio.gather(*requests):
        assert (response.status_code, error_of(response)["code"]) == (504, "deadline_exceeded")
    await until(lambda: group.running(replica) == 0)


async def test_invocations_that_exceed_the_deadline_are_counted_with_its_code(
    group: EchoGroup, gateway: httpx.AsyncClient, clock: LoopClock
) -> None:
    replica = await group.add()
    await group.publish(replica)
    sent = group.send("a", seconds=LONG, timeout=10)
    await until(lambda: group.running(replica) == 1)

    clock.advance(10)
    await sent

    lines = (await gateway.get("/metrics")).text.splitlines()
    ended = [line for line in lines if line.startswith("cornserve_gateway_invocations_total{") and replica in line]
    assert [re.findall('code="(.*?)"', line) for line in ended] == [["DEADLINE_EXCEEDED"]]


async def test_the_deadline_ends_a_started_stream_with_an_error_event(group: EchoGroup, clock: LoopClock) -> None:
    await group.publish(await group.add())

    stream = group.stream("a " * 1000, seconds=100, timeout=10)
    await until(lambda: bool(stream.items))
    clock.advance(10)
    response = await stream.ended()

    assert response.status_code == 200
    assert stream.items
    name, event = stream.events[-1]
    assert (name, event["error"]["code"]) == ("error", "deadline_exceeded")


async def test_waiting_for_a_replica_ends_at_the_deadline(
    group: EchoGroup, waits: list[float], clock: LoopClock
) -> None:
    await group.publish()
    sent = group.send("a", timeout=10)
    await until(lambda: bool(waits))

    clock.advance(10)
    response = await sent

    assert (response.status_code, error_of(response)["code"]) == (503, "unavailable")
    assert "no executor of EchoTask became ready" in error_of(response)["message"]


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", "1e9", "", "1_0"])
async def test_an_invalid_deadline_is_rejected(gateway: httpx.AsyncClient, group: EchoGroup, value: str) -> None:
    await group.publish(await group.add())

    response = await gateway.post("/v1/apps/echo/invoke", json={"text": "a"}, headers={"x-request-timeout": value})

    assert response.status_code == 400
    assert "x-request-timeout must be a number of seconds" in error_of(response)["message"]

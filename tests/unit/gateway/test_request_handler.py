"""Each request is counted once and releases its resources, regardless of how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, MutableMapping
from typing import Any

import pytest
from fastapi import Request

from cornserve.app.load import load_app
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.fork_client import ForkServer
from cornserve.blocking_apps import CurrentApp
from cornserve.control.store.base import Store
from cornserve.gateway.app_loader import AppLoader
from cornserve.gateway.app_registry import AppRegistry
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.endpoints.request_handler import RequestHandler
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import RequestAdmission
from cornserve.gateway.http.disconnect import CANCELLATION, RequestCancellation
from cornserve.gateway.http.request_id import REQUEST_ID, RequestId
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.media_loader import MediaLoader
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.request.merge_streams import merge_streams
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request.session import Session, StreamNotRequestedError
from cornserve.gateway.request_route import RequestRoute
from cornserve.gateway.served_app import ServedApp
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.limits import Limits
from cornserve.task import Stream
from tests.credentials import CREDENTIALS
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

Message = MutableMapping[str, Any]


class SingleAppRegistry(AppRegistry):
    """Serves one app, without reading the store."""

    def __init__(self, store: Store, served: ServedApp) -> None:
        super().__init__(store, AppLoader(ForkServer(), Limits()), ReplicaPool(CREDENTIALS), GatewayMetrics())
        self._served = {"echo": served}


async def _no_logs(replica: str, lines: int) -> list[str]:
    return []


@pytest.fixture
def context(store: Store, fork_server: ForkServer) -> Iterator[GatewayContext]:
    spec = AppSpec(source=AppSource(inline=ECHO))
    app = load_app("echo", spec, "echo_of_the_request_handler_test")
    route = RequestRoute(1, [1.0], {})
    served = ServedApp(LocalApp(app, CurrentApp.of_process()), "", "", route, 0)
    apps = SingleAppRegistry(store, served)
    images = MediaLoader(MediaFetcher(Limits()))
    replicas, metrics, admission = ReplicaPool(CREDENTIALS), GatewayMetrics(), RequestAdmission()
    yield GatewayContext(store, apps, replicas, metrics, _no_logs, admission, images, fork_server)
    unload_app("echo_of_the_request_handler_test")


def _counts(context: GatewayContext) -> tuple[float | None, float | None]:
    """Returns the numbers of running requests and of requests whose client disconnected."""
    registry = context.metrics.registry
    return (
        registry.get_sample_value("cornserve_gateway_requests_running", {"app": "echo"}),
        registry.get_sample_value("cornserve_gateway_requests_total", {"app": "echo", "status": "499"}),
    )


class EndlessEvents:
    """Yields one event if `first`, and then waits forever."""

    def __init__(self, *, first: bool) -> None:
        self.is_open = False
        self._first = first

    async def __call__(self, session: Session) -> AsyncGenerator[bytes, None]:
        self.is_open = True
        try:
            if self._first:
                yield b"data: 1\n\n"
            await asyncio.Future()
        finally:
            self.is_open = False


class FakeClient:
    """Records the messages sent to it."""

    def __init__(self) -> None:
        self.cancellation = RequestCancellation()
        state = {CANCELLATION: self.cancellation, REQUEST_ID: RequestId("id", is_fresh=True)}
        self.scope = {"type": "http", "path": "/v1/apps/echo/invoke", "headers": [], "state": state}
        self.sent: list[Message] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def start_stream(context: GatewayContext, *, first: bool) -> tuple[EndlessEvents, FakeClient, asyncio.Task[None]]:
    """Starts a request. Returns once its stream is open and, with `first`, has sent an event."""
    events, client = EndlessEvents(first=first), FakeClient()
    response = RequestHandler(context, "echo", Request(client.scope)).stream(events)
    request = asyncio.create_task(response(client.send))
    await until(lambda: events.is_open)
    await until(lambda: bool(client.sent) is first)
    return events, client, request


@pytest.mark.parametrize("first", [False, True])
async def test_a_cancelled_stream_is_closed_and_counted(context: GatewayContext, first: bool) -> None:
    events, _, request = await start_stream(context, first=first)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)

    assert request.cancelled()
    assert _counts(context) == (0, 1)
    assert not events.is_open


@pytest.mark.parametrize("first", [False, True])
async def test_a_stream_whose_client_disconnects_is_closed_and_counted(context: GatewayContext, first: bool) -> None:
    events, client, request = await start_stream(context, first=first)
    client.cancellation.cancel(ApiError(499, "the client disconnected"))
    await asyncio.gather(request, return_exceptions=True)

    assert not request.cancelled()
    assert _counts(context) == (0, 1)
    assert not events.is_open


async def test_a_response_whose_client_disconnects_is_cancelled_and_counted(context: GatewayContext) -> None:
    client = FakeClient()

    async def create_body(session: Session) -> bytes:
        client.cancellation.cancel(ApiError(499, "the client disconnected"))
        return await asyncio.Future()

    with pytest.raises(ApiError, match="the client disconnected"):
        await RequestHandler(context, "echo", Request(client.scope)).respond(create_body)

    assert _counts(context) == (0, 1)


async def test_a_request_that_runs_twice_has_one_arrival_time(
    context: GatewayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrivals: list[int] = []

    class RecordingSession(Session):
        def __init__(self, *request: Any, arrived_us: int, **options: Any) -> None:
            super().__init__(*request, arrived_us=arrived_us, **options)
            arrivals.append(arrived_us)

    monkeypatch.setattr("cornserve.gateway.endpoints.request_handler.Session", RecordingSession)

    async def create_body(session: Session) -> bytes:
        if len(arrivals) == 1:
            raise StreamNotRequestedError("requested late")
        return b"{}"

    before = time.time_ns() // 1000
    handler = RequestHandler(context, "echo", Request(FakeClient().scope))
    after = time.time_ns() // 1000
    await until(lambda: time.time_ns() // 1000 > after)
    await handler.respond(create_body)

    assert arrivals == [arrivals[0]] * 2
    assert before <= arrivals[0] <= after


async def test_closing_merged_streams_early_returns_at_once() -> None:
    async def items() -> AsyncGenerator[list[int], None]:
        for n in range(1000):
            yield [n]

    merged = merge_streams({"a": Stream(source=items), "b": Stream(source=items)})
    async with asyncio.timeout(60):
        await anext(merged)
        for _ in range(300):
            await asyncio.sleep(0)
        await merged.aclose()


async def test_merged_streams_yield_every_item_and_the_error_of_one_ends_them() -> None:
    async def items() -> AsyncGenerator[list[int], None]:
        yield [0, 1]
        yield [2]

    async def failing() -> AsyncGenerator[list[int], None]:
        await asyncio.sleep(0)
        raise ValueError("torn")
        yield [0]

    async def endless() -> AsyncGenerator[list[int], None]:
        await asyncio.Future()
        yield [0]

    merged = [
        (name, [*batch]) async for name, batch in merge_streams({"a": Stream(source=items), "b": Stream(source=items)})
    ]
    assert sorted(merged) == [("a", [0, 1]), ("a", [2]), ("b", [0, 1]), ("b", [2])]

    with pytest.raises(ValueError, match="torn"):
        async with asyncio.timeout(60):
            [item async for item in merge_streams({"a": Stream(source=endless), "b": Stream(source=failing)})]

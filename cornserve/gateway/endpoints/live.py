"""The live figures of the instance in `/admin/v1`, and those of this gateway for the other gateways."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from cornserve.app.costs import CostReport
from cornserve.app.live_figures import LIVE_PATH
from cornserve.app.overview import AppSeries, LiveApp, Overview, RequestList, RequestTimeline
from cornserve.gateway.endpoints import sse
from cornserve.gateway.http.request_id import MAX_ID_LENGTH
from cornserve.gateway.live.cost_history import ComputeSeconds
from cornserve.gateway.live.feed import LONGEST_COST_SECONDS, FoundRequests, LiveFeed
from cornserve.gateway.live.figures import GatewayFigures
from cornserve.gateway.live.prometheus import LONGEST_HOURS
from cornserve.gateway.live.series import GatewaySteps

router = APIRouter(prefix="/admin/v1")

internal_router = APIRouter(prefix=LIVE_PATH, include_in_schema=False)


def _feed(request: Request) -> LiveFeed:
    feed: LiveFeed = request.app.state.live
    return feed


Feed = Annotated[LiveFeed, Depends(_feed)]

RequestIdQuery = Annotated[str, Query(min_length=1, max_length=MAX_ID_LENGTH)]
"""An id, which clients may have chosen. A path cannot contain all of them: clients and proxies remove `..`."""


@router.get("/overview", response_model=Overview)
async def get_overview(feed: Feed) -> Response:
    """Returns all apps with their rates, latencies and errors, what needs attention, and the last events."""
    return _json(await feed.overview())


@router.get("/overview/events")
async def watch_overview(feed: Feed) -> StreamingResponse:
    """Streams the overview as server-sent events: after each change, and at least every two seconds."""
    return StreamingResponse(_events("overview", feed.stream(feed.overview)), media_type="text/event-stream")


@router.get("/apps/{name}/live", response_model=LiveApp)
async def get_live(name: str, feed: Feed) -> Response:
    """Returns the executor graph of an app with the present load of its replicas, edges and paths."""
    return _json(await feed.app(name))


@router.get("/apps/{name}/live/events")
async def watch_live(name: str, feed: Feed) -> StreamingResponse:
    """Streams the executor graph of an app as server-sent events, until the app is deleted."""
    await feed.app(name)
    return StreamingResponse(_events("live", feed.stream(lambda: feed.app(name))), media_type="text/event-stream")


@router.get("/apps/{name}/series")
async def get_series(name: str, feed: Feed, hours: Annotated[float, Query(gt=0, le=LONGEST_HOURS)] = 1) -> AppSeries:
    """Returns the last hour of an app in steps of 15 seconds, or more hours from Prometheus in 240 steps."""
    return await feed.series(name, hours)


@router.get("/costs")
async def get_costs(feed: Feed, minutes: Annotated[float, Query(gt=0, le=60)] = 60) -> CostReport:
    """Returns the GPU seconds and the dollars of the last minutes, by app and executor group."""
    return await feed.costs(minutes * 60)


@router.get("/requests")
async def list_requests(feed: Feed, app: str | None = None) -> RequestList:
    """Returns the last, the slow and the failed requests of an app or of all apps, without their content."""
    return await feed.requests(app)


@router.get("/requests/timeline")
async def get_request(feed: Feed, id: RequestIdQuery) -> RequestTimeline:
    """Returns a request with its parts over time."""
    return await feed.request(id)


@internal_router.get("")
async def own_figures(feed: Feed, window: Annotated[float, Query(gt=0, le=3600)], app: str | None = None) -> Response:
    figures: GatewayFigures = feed.own_figures(window, app)
    return _json(figures.model_dump_json().encode())


@internal_router.get("/series/{name}")
async def own_steps(feed: Feed, name: str) -> GatewaySteps:
    return feed.own_steps(name)


@internal_router.get("/costs")
async def own_compute_seconds(
    feed: Feed, seconds: Annotated[float, Query(gt=0, le=LONGEST_COST_SECONDS)]
) -> ComputeSeconds:
    return feed.own_compute_seconds(seconds)


@internal_router.get("/requests")
async def own_requests(feed: Feed, app: str | None = None) -> RequestList:
    return feed.own_requests(app)


@internal_router.get("/requests/timeline")
async def own_request(feed: Feed, id: RequestIdQuery) -> FoundRequests:
    return feed.own_request(id)


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json", headers={"cache-control": "no-store"})


async def _events(name: str, contents: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async for content in contents:
        yield sse.encode_event(content, name)
    yield sse.encode_event(b"{}", "deleted")

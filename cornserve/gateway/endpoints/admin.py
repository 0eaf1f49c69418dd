"""`/admin/v1`: deploys, lists, scales, watches and deletes apps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from uuid import uuid4

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from pydantic_core import to_json

from cornserve.app.declared_name import check_declared_name
from cornserve.app.event import AppEvent
from cornserve.app.record import AppSpec, AppView, Phase, ReplicaLog, Scale, UnreadableApp
from cornserve.app_host.describe import describe_app
from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.control.store.base import (
    APPS,
    AlreadyExistsError,
    AppRecord,
    ChangeType,
    ConflictError,
    ExpiredError,
    NotFoundError,
    RecordTooLargeError,
    Store,
    StoreUnavailableError,
)
from cornserve.gateway.context import Context, GatewayContext
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.app_view import app_view
from cornserve.gateway.endpoints.openapi import request_body
from cornserve.gateway.endpoints.read_request import read_validated
from cornserve.gateway.errors import ApiError
from cornserve.gateway.observe.scrape_targets import TargetGroup, scrape_targets
from cornserve.gateway.suspension import clear_suspension
from cornserve.task.errors import DefinitionError

router = APIRouter(prefix="/admin/v1")

MAX_SOURCE_BYTES = 200_000
"""The maximum size of an app's source as JSON."""

KEPT_FIELDS = {"replicas", "restart"}
"""Fields that a deployment without them does not change."""

KEEPALIVE_SECONDS = 2.0
"""The longest pause in an event stream. Clients regard a longer one as a lost connection."""


class AppList(BaseModel):
    apps: list[AppView]
    unreadable: list[UnreadableApp]


class AppLogs(BaseModel):
    replicas: list[ReplicaLog]


class AppHistory(BaseModel):
    events: list[AppEvent]


@router.get("/apps")
async def list_apps(context: Context) -> AppList:
    listing = await context.store.list(APPS)
    return AppList(
        apps=[app_view(record, context) for record in listing.records],
        unreadable=[UnreadableApp(name=record.name, message=record.reason) for record in listing.unreadable],
    )


@router.put("/apps/{name}", openapi_extra=request_body(AppSpec))
async def deploy(name: str, request: Request, context: Context) -> AppView:
    """Checks that the app can be loaded, and stores it. The controller then starts it: watch the events."""
    spec = read_validated(request, AppSpec.model_validate_json)
    _check_settings(spec, context)
    _check_size(spec)
    _check_name(name, spec)
    await _check_loads(name, spec, context)
    try:
        return app_view(await _create_or_update(context.store, name, spec), context)
    except RecordTooLargeError as error:
        raise ApiError(413, str(error), param="source") from error


@router.put("/apps/{name}/scale", openapi_extra=request_body(Scale))
async def scale(name: str, request: Request, context: Context) -> AppView:
    """Changes the number of replicas by a new generation of the same code. Running replicas do not restart."""
    replicas = read_validated(request, Scale.model_validate_json).replicas
    while True:
        record = await _get(context.store, name)
        if _has_failed(record):
            message = f"the app {name!r} has failed: redeploy it, with the replicas that it should have"
            raise ApiError(409, message, code="app_failed")
        spec = record.spec.model_copy(update={"replicas": replicas})
        with suppress(ConflictError, NotFoundError):
            record = await context.store.update_spec(APPS, name, spec, record.version)
            return app_view(record, context)


@router.post("/apps/{name}/restart")
async def restart(name: str, context: Context) -> AppView:
    """Restarts the app's executors by a new generation. The running ones serve until the new ones are ready."""
    while True:
        record = await _get(context.store, name)
        spec = record.spec.model_copy(update={"restart": new_restart_id()})
        with suppress(ConflictError, NotFoundError):
            return app_view(await context.store.update_spec(APPS, name, spec, record.version), context)


@router.get("/apps/{name}")
async def get_app(name: str, context: Context) -> AppView:
    return app_view(await _get(context.store, name), context)


@router.delete("/apps/{name}", status_code=204)
async def delete_app(name: str, context: Context) -> None:
    try:
        await context.store.delete(APPS, name)
    except NotFoundError as error:
        raise _not_found(name) from error


@router.get("/apps/{name}/events")
async def watch_app(name: str, context: Context) -> StreamingResponse:
    """Streams the app, now and after each change, as server-sent events, until it is deleted."""
    listing = await context.store.list(APPS)
    record = next((record for record in listing.records if record.name == name), None)
    if record is None:
        raise _not_found(name)
    events = _events(context, record, listing.version)
    return StreamingResponse(_with_keepalives(events), media_type="text/event-stream")


@router.get("/apps/{name}/history")
async def get_history(name: str, context: Context) -> AppHistory:
    """Returns what has happened to the app: on Kubernetes its Events, on one machine its current state."""
    return AppHistory(events=await context.events(await _get(context.store, name)))


@router.get("/metrics/targets")
async def metrics_targets(request: Request, context: Context) -> list[TargetGroup]:
    """Returns the metrics endpoints of all processes, in the format of Prometheus's HTTP service discovery."""
    gateways = context.gateways or [request.url.netloc]
    return scrape_targets(gateways, context.controller_metrics, context.apps.executor_groups())


@router.get("/apps/{name}/logs")
async def get_logs(name: str, context: Context, lines: int = Query(default=100, ge=1, le=10_000)) -> AppLogs:
    """Returns the last log lines of the app's executors."""
    record = await _get(context.store, name)
    ids = [replica.id for group in record.status.groups for replica in group.replicas]
    return AppLogs(replicas=[ReplicaLog(id=id, lines=await context.logs(id, lines)) for id in ids])


def _check_settings(spec: AppSpec, context: GatewayContext) -> None:
    if not context.on_kubernetes and spec.kubernetes_settings:
        fields = ", ".join(spec.kubernetes_settings)
        raise ApiError(
            400, f"{fields}: needs Kubernetes, and this instance runs on one machine: remove it", param=fields
        )
    if spec.source_config_map is not None:
        message = "source_config_map: can be set only in an App resource: apply one with kubectl, or give the source"
        raise ApiError(400, message, param="source_config_map")


def _check_size(spec: AppSpec) -> None:
    size = len(to_json(spec.source))
    if size > MAX_SOURCE_BYTES:
        message = f"the source has {size} bytes as JSON: at most {MAX_SOURCE_BYTES} are allowed, move data to files"
        raise ApiError(413, message, param="source")


def _check_name(name: str, spec: AppSpec) -> None:
    try:
        check_declared_name(name, spec.source)
    except DefinitionError as error:
        raise ApiError(400, str(error), param="name", code="invalid_app") from error


async def _check_loads(name: str, spec: AppSpec, context: GatewayContext) -> None:
    try:
        await describe_app(context.fork_server, context.admission.limits, name, spec)
    except (DefinitionError, AppLoadError) as error:
        raise ApiError(400, str(error), code="invalid_app") from error
    except ForkServerError as error:
        raise ApiError(503, f"the app cannot be checked: {error}", code="not_ready") from error


async def _create_or_update(store: Store, name: str, spec: AppSpec) -> AppRecord:
    """Creates or updates the app. Restarts an app that has failed, even if the spec has not changed."""
    await clear_suspension(store, name)
    while True:
        try:
            record = await store.get(APPS, name)
        except NotFoundError:
            try:
                return await store.create(APPS, name, spec)
            except AlreadyExistsError:
                continue
        kept = {field: getattr(record.spec, field) for field in KEPT_FIELDS - spec.model_fields_set}
        if _has_failed(record):
            kept["restart"] = new_restart_id()
        with suppress(ConflictError, NotFoundError):
            return await store.update_spec(APPS, name, spec.model_copy(update=kept), record.version)


def new_restart_id() -> str:
    """Returns a restart id that differs from all others."""
    return uuid4().hex[:8]


def _has_failed(record: AppRecord) -> bool:
    return record.status.phase is Phase.FAILED and record.status.generation == record.generation


async def _get(store: Store, name: str) -> AppRecord:
    try:
        return await store.get(APPS, name)
    except NotFoundError as error:
        raise _not_found(name) from error


def _not_found(name: str) -> ApiError:
    return ApiError(
        404, f"unknown app {name!r}: `cornserve status` lists the deployed apps", param="name", code="app_not_found"
    )


async def _events(context: GatewayContext, record: AppRecord, version: int) -> AsyncGenerator[bytes, None]:
    """Yields the record, which was read at `version`, and its changes since then."""
    yield _event("put", record, context)
    try:
        async for change in context.store.watch(APPS, version):
            if change.record.name == record.name:
                yield _event(change.type, change.record, context)
                if change.type is ChangeType.DELETED:
                    return
    except (ExpiredError, StoreUnavailableError):
        return  # clients reconnect, as with any server-sent events


def _event(type_: str, record: AppRecord, context: GatewayContext) -> bytes:
    return sse.encode_event(app_view(record, context).model_dump_json().encode(), type_)


async def _with_keepalives(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yields the events, and comments, which clients ignore, during pauses."""
    async with aclosing(events):
        while True:
            next_event = asyncio.ensure_future(anext(events))
            try:
                while not (await asyncio.wait((next_event,), timeout=KEEPALIVE_SECONDS))[0]:
                    yield b": \n\n"
                event = next_event.result()
            except StopAsyncIteration:
                return
            finally:
                next_event.cancel()
                await asyncio.gather(next_event, return_exceptions=True)
            yield event

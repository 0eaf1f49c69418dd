"""`/admin/v1`: deploying, looking at and deleting apps."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from cornserve.app.load import load
from cornserve.app.record import AppSpec, AppView, Phase
from cornserve.app.source import unload_app
from cornserve.control.store.base import (
    APPS,
    AlreadyExistsError,
    AppRecord,
    ChangeType,
    ConflictError,
    ExpiredError,
    NotFoundError,
    Store,
    TooLargeError,
    UnavailableError,
)
from cornserve.gateway import sse
from cornserve.gateway.context import Context
from cornserve.gateway.errors import ApiError, of_validation
from cornserve.task.errors import DefinitionError

router = APIRouter(prefix="/admin/v1")

MAX_SOURCE_BYTES = 200_000
"""Of an app's source as JSON: its record holds it twice, in the spec and in the route."""


class AppList(BaseModel):
    apps: list[AppView]


class ReplicaLog(BaseModel):
    id: str
    lines: list[str]


class AppLogs(BaseModel):
    replicas: list[ReplicaLog]


@router.get("/apps")
async def list_apps(context: Context) -> AppList:
    return AppList(apps=[_view(record) for record in (await context.store.list(APPS)).records])


@router.put("/apps/{name}")
async def deploy(name: str, request: Request, context: Context) -> AppView:
    """Stores what should run, once it is known that it could. The controller does the rest: watch the events."""
    try:
        spec = AppSpec.model_validate_json(await request.body())
    except ValidationError as error:
        raise of_validation(error) from error
    _check_fields(spec)
    await _check_loads(name, spec)
    try:
        return _view(await _put(context.store, name, spec))
    except TooLargeError as error:
        raise ApiError(413, str(error), param="source") from error


@router.get("/apps/{name}")
async def get_app(name: str, context: Context) -> AppView:
    return _view(await _get(context.store, name))


@router.delete("/apps/{name}", status_code=204)
async def delete_app(name: str, context: Context) -> None:
    try:
        await context.store.delete(APPS, name)
    except NotFoundError as error:
        raise ApiError(404, str(error), param="name", code="app_not_found") from error


@router.get("/apps/{name}/events")
async def watch_app(name: str, context: Context) -> StreamingResponse:
    """Server-sent events: the app now and after each change, until it is deleted or the client leaves."""
    listing = await context.store.list(APPS)
    record = next((record for record in listing.records if record.name == name), None)
    if record is None:
        raise _not_found(name)
    events = _events(context.store, record, listing.version)
    return StreamingResponse(sse.kept_alive(events), media_type="text/event-stream")


@router.get("/apps/{name}/logs")
async def get_logs(name: str, context: Context, lines: int = Query(default=100, ge=1, le=10_000)) -> AppLogs:
    """What the app's executors wrote last."""
    record = await _get(context.store, name)
    ids = [replica.id for group in record.status.groups for replica in group.replicas]
    return AppLogs(replicas=[ReplicaLog(id=id, lines=await context.logs(id, lines)) for id in ids])


def _check_fields(spec: AppSpec) -> None:
    if "tries" in spec.model_fields_set:  # this gateway counts them
        raise ApiError(400, "unknown or unsupported field: 'tries'", param="tries", code="unknown_field")
    size = len(to_json(spec.source))
    if size > MAX_SOURCE_BYTES:
        message = f"the source takes {size} bytes as JSON, and at most {MAX_SOURCE_BYTES} are stored"
        raise ApiError(413, message, param="source")


async def _check_loads(name: str, spec: AppSpec) -> None:
    module = f"cornserve_check_{uuid.uuid4().hex}"
    try:
        await asyncio.to_thread(load, name, spec, module)
    except DefinitionError as error:
        raise ApiError(400, str(error), code="invalid_app") from error
    finally:
        unload_app(module)


async def _put(store: Store, name: str, spec: AppSpec) -> AppRecord:
    while True:
        try:
            record = await store.get(APPS, name)
        except NotFoundError:
            try:
                return await store.create(APPS, name, spec)
            except AlreadyExistsError:
                continue
        failed = record.status.phase is Phase.FAILED and record.status.generation == record.generation
        tries = record.spec.tries + 1 if failed else record.spec.tries
        try:
            return await store.update_spec(APPS, name, spec.model_copy(update={"tries": tries}), record.version)
        except (ConflictError, NotFoundError):
            continue


def _view(record: AppRecord) -> AppView:
    return AppView(
        name=record.name,
        uid=record.uid,
        generation=record.generation,
        version=record.version,
        spec=record.spec,
        status=record.status,
    )


async def _get(store: Store, name: str) -> AppRecord:
    try:
        return await store.get(APPS, name)
    except NotFoundError as error:
        raise _not_found(name) from error


def _not_found(name: str) -> ApiError:
    return ApiError(404, f"there is no app {name!r}", param="name", code="app_not_found")


async def _events(store: Store, record: AppRecord, version: int) -> AsyncGenerator[bytes, None]:
    """The record, which is as the store was at `version`, and its changes from there."""
    yield _event("put", record)
    try:
        async for change in store.watch(APPS, version):
            if change.record.name == record.name:
                yield _event(change.type, change.record)
                if change.type is ChangeType.DELETED:
                    return
    except (ExpiredError, UnavailableError):
        return  # clients connect again, as with any server-sent events


def _event(type_: str, record: AppRecord) -> bytes:
    return sse.event(_view(record).model_dump_json().encode(), type_)

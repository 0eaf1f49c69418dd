"""`/admin/v1`: deploys, lists, scales, watches and deletes apps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from pydantic_core import to_json

from cornserve.app.adaptation_status import MixtureProposal, PlanProposal
from cornserve.app.declared_name import check_declared_name
from cornserve.app.event import AppEvent
from cornserve.app.graph import AppGraph, no_graph_reason
from cornserve.app.load import with_all_paths
from cornserve.app.record import AppView, EngineTokens, FailureReason, Phase, ReplicaExit, ReplicaLog, UnreadableApp
from cornserve.app.scale import Scale, ScaleError, scaled_spec
from cornserve.app.settings import MAX_EXECUTOR_OVERRIDES, ExecutorName
from cornserve.app.spec import AppSpec, Restart
from cornserve.app_host.describe import describe_app
from cornserve.app_host.description import AppDescription
from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.concurrency import gather_all
from cornserve.control.store.base import (
    APPS,
    AlreadyExistsError,
    AppRecord,
    ConflictError,
    NotFoundError,
    RecordTooLargeError,
    Store,
)
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.gateway.context import Context, GatewayContext
from cornserve.gateway.endpoints.app_events import app_events
from cornserve.gateway.endpoints.deployed_spec import check_executors, deployed_spec
from cornserve.gateway.endpoints.openapi import request_body
from cornserve.gateway.endpoints.read_request import read_validated
from cornserve.gateway.errors import ApiError
from cornserve.gateway.live.app_view import app_view
from cornserve.gateway.observe.engine_tokens import read_engine_tokens
from cornserve.gateway.observe.replica_memory import read_replica_memory
from cornserve.gateway.observe.scrape_targets import TargetGroup, scrape_targets
from cornserve.gateway.suspension import clear_suspension
from cornserve.task.errors import DefinitionError
from cornserve_policies.registry import UnknownPolicyError, routing_policy

router = APIRouter(prefix="/admin/v1")

MAX_SOURCE_BYTES = 200_000
"""The maximum size of an app's source as JSON."""


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
    _check_policies(spec)
    _check_size(spec)
    _check_name(name, spec)
    description = await _describe(name, spec, context)
    try:
        return app_view(await _create_or_update(context.store, name, spec, description), context)
    except RecordTooLargeError as error:
        raise ApiError(413, str(error), param="source.inline") from error


@router.put("/apps/{name}/scale", openapi_extra=request_body(Scale))
async def scale(name: str, request: Request, context: Context) -> AppView:
    """Changes replicas or cells by a new generation of the same code. Other replicas do not restart."""
    requested = read_validated(request, Scale.model_validate_json)
    while True:
        record = await _get(context.store, name)
        if _has_failed(record) and not _needed_too_much(record):
            message = f"the app {name!r} has failed: redeploy it, with the replicas that it should have"
            raise ApiError(409, message, code="app_failed")
        try:
            _check_executors(requested.executors or (), record, "executors")
            spec = scaled_spec(name, record.spec, requested, datetime.now(UTC), _proposal(record))
        except ScaleError as error:
            raise ApiError(409, str(error), param=error.param, code="cannot_scale") from error
        with suppress(ConflictError, NotFoundError):
            record = await context.store.update_spec(APPS, name, spec, record.version)
            return app_view(record, context)


@router.post("/apps/{name}/restart")
async def restart(
    name: str, context: Context, executor: Annotated[list[ExecutorName] | None, Query()] = None
) -> AppView:
    """Restarts the app's executors by a new generation: all of them, or those with these names.

    The running ones serve until the new ones are ready.
    """
    while True:
        record = await _get(context.store, name)
        restart = _restarted_executors(record, executor) if executor else _restarted(record.spec)
        spec = record.spec.model_copy(update={"restart": restart})
        with suppress(ConflictError, NotFoundError):
            return app_view(await context.store.update_spec(APPS, name, spec, record.version), context)


@router.post("/apps/{name}/replicas/{replica}/kill", status_code=204)
async def kill_replica(name: str, replica: str, context: Context) -> None:
    """Kills the process of a replica, to try the recovery: the controller starts another one."""
    record = await _get(context.store, name)
    if context.kill_replica is None:
        message = f"replicas are not processes of this machine: on Kubernetes, run `kubectl delete pod {replica}`"
        raise ApiError(400, message, code="cannot_kill")
    known = {each.id for group in record.status.groups for each in group.replicas}
    if replica not in known or not await context.kill_replica(replica):
        message = f"{name} has no running replica {replica!r}: `cornserve status {name}` lists its replicas"
        raise ApiError(404, message, param="replica", code="replica_not_found")


@router.get("/apps/{name}")
async def get_app(name: str, context: Context, memory: bool = False) -> AppView:
    """Returns an app, on request with the shared memory that its replicas have for tensors."""
    view = app_view(await _get(context.store, name), context)
    return view.model_copy(update={"memory": await read_replica_memory(view.status.groups)}) if memory else view


@router.get("/apps/{name}/engines")
async def get_engines(name: str, context: Context) -> dict[str, EngineTokens]:
    """Returns the limits and the tokens of the engines of the app's language models, by replica."""
    return await read_engine_tokens((await _get(context.store, name)).status.groups)


@router.get("/apps/{name}/graph")
async def get_graph(name: str, context: Context) -> AppGraph:
    """Loads the app again, and records its executor graph. A model without source has all paths of its family."""
    record = await _get(context.store, name)
    try:
        spec = await run_in_daemon_thread(with_all_paths, record.spec)
    except DefinitionError as error:
        raise ApiError(400, str(error), code="invalid_app") from error
    graph = (await _describe(name, spec, context)).graph
    if graph is None:
        raise ApiError(400, no_graph_reason(name), code="app_without_graph")
    return graph


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
    events = app_events(context, record, listing.version)
    return StreamingResponse(events, media_type="text/event-stream")


@router.get("/apps/{name}/history")
async def get_history(name: str, context: Context) -> AppHistory:
    """Returns what has happened to the app: on Kubernetes its Events, on one machine the last exits of its executors
    and its current state."""
    return AppHistory(events=await context.events(await _get(context.store, name)))


@router.get("/metrics/targets")
async def metrics_targets(request: Request, context: Context) -> list[TargetGroup]:
    """Returns the metrics endpoints of all processes, in the format of Prometheus's HTTP service discovery."""
    gateways = context.gateways or [request.url.netloc]
    return scrape_targets(gateways, context.controller_metrics, context.apps.executor_groups())


@router.get("/apps/{name}/logs", response_model_exclude_none=True)
async def get_logs(
    name: str, context: Context, lines: int = Query(default=100, ge=1, le=10_000), replica: str | None = None
) -> AppLogs:
    """Returns the last log lines of the app's executors, also of those that have exited, and the last prints and
    tracebacks of its own code in each gateway. With `replica`, only the log with this id."""
    record = await _get(context.store, name)
    exits = {exit.replica: exit for exit in record.status.exits}
    ids = dict.fromkeys([*exits, *(each.id for group in record.status.groups for each in group.replicas)])
    if replica in ids:
        return AppLogs(replicas=[await _replica_log(replica, lines, exits, context)])
    gateways = await context.app_logs.last(name, lines, replica)
    if replica is None:
        return AppLogs(replicas=[*gateways, *await gather_all(_replica_log(id, lines, exits, context) for id in ids)])
    if not gateways:
        message = f"{name} has no log of {replica!r}: `cornserve logs {name}` shows those that it has"
        raise ApiError(404, message, param="replica", code="replica_not_found")
    return AppLogs(replicas=gateways)


async def _replica_log(
    replica: str, lines: int, exits: Mapping[str, ReplicaExit], context: GatewayContext
) -> ReplicaLog:
    return ReplicaLog(id=replica, lines=await context.logs(replica, lines), exit=exits.get(replica))


def _check_settings(spec: AppSpec, context: GatewayContext) -> None:
    if not context.on_kubernetes and spec.kubernetes_settings:
        fields = ", ".join(spec.kubernetes_settings)
        raise ApiError(
            400, f"{fields}: needs Kubernetes, and this instance runs on one machine: remove it", param=fields
        )
    if spec.source is not None and spec.source.config_map_key_ref is not None:
        message = (
            "source.config_map_key_ref: can be set only in an App resource: apply one with kubectl, or give the source"
        )
        raise ApiError(400, message, param="source.config_map_key_ref")


def _check_policies(spec: AppSpec) -> None:
    try:
        routing_policy(spec.policies.routing)
    except UnknownPolicyError as error:
        raise ApiError(400, f"policies.routing: {error}", param="policies.routing", code="invalid_app") from error


def _check_size(spec: AppSpec) -> None:
    size = len(to_json(spec.inline_source))
    if size > MAX_SOURCE_BYTES:
        message = f"the source has {size} bytes as JSON: at most {MAX_SOURCE_BYTES} are allowed, move data to files"
        raise ApiError(413, message, param="source.inline")


def _check_name(name: str, spec: AppSpec) -> None:
    try:
        check_declared_name(name, spec.inline_source)
    except DefinitionError as error:
        raise ApiError(400, str(error), param="name", code="invalid_app") from error


async def _describe(name: str, spec: AppSpec, context: GatewayContext) -> AppDescription:
    try:
        return await describe_app(context.fork_server, context.admission.limits, name, spec)
    except (DefinitionError, AppLoadError) as error:
        raise ApiError(400, str(error), code="invalid_app") from error
    except ForkServerError as error:
        raise ApiError(503, f"the app cannot be checked: {error}", code="not_ready") from error


async def _create_or_update(store: Store, name: str, spec: AppSpec, description: AppDescription) -> AppRecord:
    """Creates or updates the app. Restarts an app that has failed, even if the spec has not changed."""
    await clear_suspension(store, name)
    while True:
        try:
            record = await store.get(APPS, name)
        except NotFoundError:
            check_executors(spec, description)
            try:
                return await store.create(APPS, name, spec)
            except AlreadyExistsError:
                continue
        updated = deployed_spec(spec, record.spec, description)
        check_executors(updated, description)
        # A plan that needed too much has started nothing: executors that run serve a smaller plan without a restart.
        if _has_failed(record) and (updated == record.spec or not _needed_too_much(record)):
            updated = updated.model_copy(update={"restart": _restarted(updated)})
        with suppress(ConflictError, NotFoundError):
            return await store.update_spec(APPS, name, updated, record.version)


def _restarted(spec: AppSpec) -> Restart:
    """Returns a restart of all executors of an app, whose id differs from all others."""
    return (spec.restart or Restart()).model_copy(update={"id": _new_id()})


def _restarted_executors(record: AppRecord, executors: Sequence[str]) -> Restart:
    """Returns a restart of the executors with these names. Raises `ApiError`."""
    if not _executors_of(record):
        message = f"no executor of the app {record.name!r} runs yet: restart the app"
        raise ApiError(409, message, param="executor", code="cannot_restart")
    _check_executors(executors, record, "executor")
    before = record.spec.restart or Restart()
    restarted = before.executors | dict.fromkeys(executors, _new_id())
    if len(restarted) > MAX_EXECUTOR_OVERRIDES:
        message = f"at most {MAX_EXECUTOR_OVERRIDES} executors of an app can be restarted alone: restart the app"
        raise ApiError(409, message, param="executor", code="cannot_restart")
    return Restart(id=before.id, executors=restarted)


def _new_id() -> str:
    return uuid4().hex[:8]


def _has_failed(record: AppRecord) -> bool:
    return record.status.phase is Phase.FAILED and record.status.generation == record.generation


def _executors_of(record: AppRecord) -> set[str]:
    """Returns the names of the app's executors. They are unknown while it is loaded for the first time."""
    return {group.executor for group in record.status.groups}


def _check_executors(names: Iterable[str], record: AppRecord, param: str) -> None:
    """Checks that the app has executors with these names, if its executors are known. Raises `ApiError`."""
    known = _executors_of(record)
    for name in names:
        if known and name not in known:
            message = f"the app has no executor {name!r}: choose from {', '.join(sorted(known))}"
            raise ApiError(400, message, param=param, code="unknown_executor")


def _proposal(record: AppRecord) -> MixtureProposal | PlanProposal | None:
    """Returns the change of the app's plan that waits for an approval."""
    adaptation = record.status.adaptation
    return None if adaptation is None else adaptation.pending_proposal(record.generation)


def _needed_too_much(record: AppRecord) -> bool:
    """Whether the plan of the latest generation needs more than exists: a smaller mixture may fit."""
    return record.spec.plan is not None and record.status.reason is FailureReason.INSUFFICIENT_CAPACITY


async def _get(store: Store, name: str) -> AppRecord:
    try:
        return await store.get(APPS, name)
    except NotFoundError as error:
        raise _not_found(name) from error


def _not_found(name: str) -> ApiError:
    return ApiError(
        404, f"unknown app {name!r}: `cornserve status` lists the deployed apps", param="name", code="app_not_found"
    )

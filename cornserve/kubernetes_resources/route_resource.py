"""`AppRoute`: the internal resource with the route of an app, and its conversion from and to the stored record.

Settings of executors and the app's spec are JSON text: the API server would change numbers such as 1.0 to 1, and the
keys of executors depend on them.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cornserve.app.record import Route, RouteStatus
from cornserve.app.route_plan import RoutePlan
from cornserve.app.spec import MAX_PATHS, MAX_SOURCE_CHARACTERS, AppSpec
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.camel_case import from_json, to_json
from cornserve.kubernetes_resources.spec_mapping import AppResourceError
from cornserve.task.spec import ExecutorSpec
from cornserve.validation_errors import describe_all

MAX_ROUTE_EXECUTORS = 128
MAX_SPEC_CHARACTERS = 256 * 1024
MAX_PLAN_CHARACTERS = 256 * 1024


class _RouteSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RouteExecutor(_RouteSection):
    """An executor of the version that serves."""

    key: str = Field(max_length=253)
    """The key of the executor's settings."""
    group: str | None = Field(default=None, max_length=253)
    """The name of the Deployment and of the Services that run it."""
    spec: str = Field(max_length=MAX_SPEC_CHARACTERS)
    """The settings of the executor, as JSON text."""


class AppRouteSpec(_RouteSection):
    """The version of an app that serves. The controller writes it, gateways read it: do not change it."""

    app_uid: str = Field(max_length=64)
    """The uid of the `App`."""
    generation: int = Field(ge=0)
    """The generation of the `App` that serves."""
    app: str = Field(max_length=2 * MAX_SOURCE_CHARACTERS)
    """The spec of the served generation, with its source, as JSON text."""
    shares: list[str] = Field(max_length=MAX_PATHS)
    """The shares of requests of the paths, as decimal numbers."""
    executors: list[RouteExecutor] = Field(
        default_factory=list,
        max_length=MAX_ROUTE_EXECUTORS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]},
    )
    """The executors of the paths."""
    plan: str | None = Field(default=None, max_length=MAX_PLAN_CHARACTERS)
    """The cells and the routing of a planned app, as JSON text."""


class AppRouteStatus(_RouteSection):
    """The state of a route, which gateways write."""

    suspended: str = Field(default="", max_length=32_768)
    """The reason for which gateways refuse requests to the app: its code has ended its processes again and again."""
    suspended_code: str = Field(default="", max_length=64)
    """The version that is suspended. Another version of the app is not."""


def encode_route(route: Route) -> JsonObject:
    """Returns `AppRoute.spec`."""
    return to_json(
        AppRouteSpec(
            app_uid=route.app_uid,
            generation=route.generation,
            app=route.spec.model_dump_json(exclude_defaults=True),
            shares=[repr(share) for share in route.shares],
            executors=[
                RouteExecutor(key=key, group=route.groups.get(key), spec=spec.model_dump_json(exclude_defaults=True))
                for key, spec in route.specs.items()
            ],
            plan=None if route.plan is None else route.plan.model_dump_json(exclude_defaults=True),
        )
    )


def decode_route(spec: JsonObject) -> Route:
    """Returns the route for `AppRoute.spec`. Raises `AppResourceError` if `encode_route` has not written it."""
    try:
        resource = from_json(AppRouteSpec, spec)
        return Route(
            app_uid=resource.app_uid,
            generation=resource.generation,
            spec=AppSpec.model_validate_json(resource.app),
            shares=[float(share) for share in resource.shares],
            specs={executor.key: ExecutorSpec.model_validate_json(executor.spec) for executor in resource.executors},
            groups={executor.key: executor.group for executor in resource.executors if executor.group is not None},
            plan=None if resource.plan is None else RoutePlan.model_validate_json(resource.plan),
        )
    except ValidationError as error:
        raise AppResourceError(f"route: {describe_all(error.errors())}") from error
    except ValueError as error:
        raise AppResourceError(f"route: {error}") from error


def encode_route_status(status: RouteStatus) -> JsonObject:
    return to_json(AppRouteStatus(suspended=status.suspended, suspended_code=status.suspended_code))


def decode_route_status(status: JsonObject) -> RouteStatus:
    """Raises `AppResourceError` if `encode_route_status` has not written it."""
    try:
        resource = from_json(AppRouteStatus, status)
    except ValidationError as error:
        raise AppResourceError(f"route status: {describe_all(error.errors())}") from error
    return RouteStatus(suspended=resource.suspended, suspended_code=resource.suspended_code)

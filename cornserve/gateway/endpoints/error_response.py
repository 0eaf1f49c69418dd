"""Error responses for the exceptions that leave a handler or FastAPI."""

from __future__ import annotations

import logging

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from cornserve.control.store.base import (
    FieldConflictError,
    RecordRejectedError,
    StoreError,
)
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.request_id import REQUEST_ID
from cornserve.tracebacks import clear_traceback
from cornserve.validation_errors import describe_error

log = logging.getLogger(__name__)


def error_response(error: Exception, request: Request, context: GatewayContext) -> Response:
    """Counts the error and returns its response."""
    api_error = _to_api_error(error, request.method, request.scope["path"])
    if api_error.status == 405:
        api_error.headers["Allow"] = ", ".join(_allowed_methods(request))
    context.metrics.record_error(api_error.status, api_error.body.error.code)
    clear_traceback(api_error)
    return Response(
        api_error.content_for(
            request.scope["path"], request.scope["headers"], request.scope["state"][REQUEST_ID].value
        ),
        status_code=api_error.status,
        headers=api_error.headers,
        media_type="application/json",
    )


def _allowed_methods(request: Request) -> list[str]:
    """Returns the methods of the routes with the path of the request."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _to_api_error(error: Exception, method: str, path: str) -> ApiError:
    match error:
        case ApiError():
            return error
        case HTTPException(status_code=404):
            return ApiError(404, f"unknown path {path!r}: see the paths in /docs")
        case HTTPException(status_code=405):
            return ApiError(405, f"method {method} is not allowed for {path!r}: see the methods in /docs")
        case HTTPException():
            return ApiError(error.status_code, f"{method} {path}: {error.detail}")
        case RequestValidationError():  # an invalid query parameter
            first = error.errors()[0]
            param = str(first["loc"][-1])
            return ApiError(400, f"{param}: {describe_error(first)}", param=param)
        case FieldConflictError():
            return ApiError(409, str(error), code="field_conflict")
        case RecordRejectedError():
            return ApiError(400, str(error), code="invalid_app")
        case StoreError():
            log.error("%s %r: %s", method, path, error)
            return ApiError(503, str(error), code="store_error")
        case _:  # the server logs the traceback
            log.error("%s %r failed", method, path)
            return ApiError(500, "the gateway failed: see its log", code="internal_error")

"""Error responses for the exceptions that leave a handler or FastAPI."""

from __future__ import annotations

import logging

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cornserve.control.store.base import StoreError
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.errors import ApiError
from cornserve.tracebacks import clear_traceback

log = logging.getLogger(__name__)


def error_response(error: Exception, request: Request, context: GatewayContext) -> Response:
    """Counts the error and returns its response."""
    api_error = _to_api_error(error, f"{request.method} {request.scope['path']}")
    context.metrics.record_error(api_error.status, api_error.body.error.code)
    clear_traceback(api_error)
    return Response(
        api_error.content, status_code=api_error.status, headers=api_error.headers, media_type="application/json"
    )


def _to_api_error(error: Exception, operation: str) -> ApiError:
    match error:
        case ApiError():
            return error
        case HTTPException():  # an unknown path, or a wrong method
            return ApiError(error.status_code, f"{operation}: {error.detail}")
        case RequestValidationError():  # an invalid query parameter
            first = error.errors()[0]
            param = str(first["loc"][-1])
            return ApiError(400, f"{param}: {first['msg']}", param=param)
        case StoreError():
            log.error("%s: the store failed: %s", operation, error)
            return ApiError(503, f"the store failed: {error}", code="store_error")
        case _:  # the server logs the traceback
            log.error("%s failed", operation)
            return ApiError(500, "the gateway failed: see its log", code="internal_error")

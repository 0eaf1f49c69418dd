"""Errors of code that runs in app hosts."""

from __future__ import annotations

import json

from cornserve.app.unused_fields import UnusedFieldsError
from cornserve.app_host.invocation_failure import invocation_error
from cornserve.gateway.errors import ApiError, AppCodeError
from cornserve.v1 import app_host_pb2 as pb


def exception_of(error: pb.HostError, app: str, task: str) -> Exception:
    """Returns the exception for an error in the host of an app."""
    if error.HasField("invocation"):
        return invocation_error(error.invocation)
    if error.unused_fields:
        return UnusedFieldsError(error.unused_fields)
    if error.problem:
        return ApiError.from_problem(json.loads(error.problem), error.further_problems, error.further_fields)
    reason = f"{error.type}: {error.message}" if error.message else error.type
    hint = " (limit app-mib, see `cornserve up --limit`)" if error.is_exhausted else ""
    return AppCodeError(f"{reason}{hint}", app, task, error.location, error.traceback)

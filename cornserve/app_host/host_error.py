"""Describes exceptions of an app's code for the process that uses the app."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator

from pydantic import ValidationError

from cornserve.app.unused_fields import UnusedFieldsError
from cornserve.app_host.exhaustion import is_exhausted
from cornserve.observe.redaction import redacted_traceback
from cornserve.task.errors import DefinitionError, InvocationError, TaskError
from cornserve.v1 import app_host_pb2 as pb

MAX_QUOTED_CHARACTERS = 200
"""Longer inputs are cut in the errors of an invalid request."""


def describe_error(error: BaseException, module: str) -> pb.HostError:
    """Returns the description of an exception that the app's code raised. `module` is the name of its module."""
    described = pb.HostError(
        type=type(error).__name__,
        message=str(error).encode(errors="replace").decode(),
        location=error_location(error, module),
        traceback=redacted_traceback(error),
        is_definition=isinstance(error, DefinitionError),
        is_exhausted=is_exhausted(error),
    )
    match error:
        case InvocationError():
            described.invocation.CopyFrom(invocation_failure(error))
        case UnusedFieldsError():
            described.unused_fields.extend(error.fields)
    if isinstance(error, TaskError) and not described.is_exhausted and error.__cause__ is None:
        described.location = ""  # Cornserve's own error
    return described


def describe_invalid_request(error: ValidationError) -> pb.HostError:
    """Returns the description of a request that does not have the app's request type."""
    first, *further = error.errors(include_url=False, include_context=False)
    problem = json.dumps(first | {"input": _quoted(first["input"])})  # escapes lone surrogates, unlike pydantic
    return pb.HostError(type="ValidationError", problem=problem.encode(), further_problems=len(further))


def invocation_failure(error: InvocationError) -> pb.InvocationFailure:
    return pb.InvocationFailure(invocation=error.invocation, task=error.task, code=error.code, message=error.message)


def error_location(error: BaseException, module: str) -> str:
    """Returns the innermost line of the app's own source through which the error passed: "app.py:12 in invoke"."""
    prefix = f"<{module}>/"
    found = ""
    for cause in _chain(error):
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.filename.startswith(prefix):
                found = f"{frame.filename.removeprefix(prefix)}:{frame.lineno} in {frame.name}"
        if found:
            break
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the cause of each error before the error."""
    if error.__cause__ is not None:
        yield from _chain(error.__cause__)
    yield error


def _quoted(value: object) -> object:
    """Returns the value without the parts that error messages do not quote."""
    if isinstance(value, dict | list | tuple):
        return type(value)()
    if isinstance(value, bytes | bytearray):
        return value[:MAX_QUOTED_CHARACTERS].decode(errors="replace")
    if isinstance(value, str):
        return value[:MAX_QUOTED_CHARACTERS]
    return value if isinstance(value, bool | int | float | None) else repr(value)[:MAX_QUOTED_CHARACTERS]

"""Describes exceptions of an app's code for the process that uses the app."""

from __future__ import annotations

import json
import traceback

from pydantic import ValidationError

from cornserve.app.source import source_path
from cornserve.app.unused_fields import UnusedFieldsError
from cornserve.app_host.invocation_failure import describe_failure
from cornserve.app_host.sandbox import refusal_hint
from cornserve.exception_text import exception_message, exception_text
from cornserve.observe.redaction import redacted_traceback
from cornserve.task.errors import DefinitionError, InvocationError, SideEffectError, TaskError
from cornserve.tracebacks import error_chain
from cornserve.v1 import app_host_pb2 as pb
from cornserve.validation_errors import first_problems, further_fields, locate_error

MAX_QUOTED_CHARACTERS = 200
"""Longer inputs are cut in the errors of an invalid request."""

_NO_THREAD = "can't start new thread"
"""The message of the interpreter's `RuntimeError`."""


def describe_error(error: BaseException, module: str, logs_messages: bool = False) -> pb.HostError:
    """Returns the description of an exception that the app's code raised.

    Args:
        module: the name of the app's module.
        logs_messages: whether the traceback has the messages of errors.
    """
    source = source_path(module, filename="")
    described = pb.HostError(
        type=type(error).__name__,
        message=exception_message(error) + _refusal_hint(error),
        location=_location(error, source),
        traceback=redacted_traceback(error, source, shows_messages=logs_messages),
        is_definition=isinstance(error, DefinitionError),
        is_exhausted=_is_exhausted(error),
    )
    match error:
        case InvocationError():
            described.invocation.CopyFrom(describe_failure(error))
        case UnusedFieldsError():
            described.unused_fields.extend(error.fields)
    if _is_own_error(error) and not described.is_exhausted:
        described.location = ""
    return described


def describe_invalid_request(error: ValidationError) -> pb.HostError:
    """Returns the description of a request that does not have the app's request type."""
    first, *further = first_problems(error)
    quoted = {**locate_error(first), **({"input": _quoted(first["input"])} if "input" in first else {})}
    problem = json.dumps(quoted)  # escapes lone surrogates, unlike pydantic
    return pb.HostError(
        type="ValidationError",
        problem=problem.encode(),
        further_problems=error.error_count() - 1,
        further_fields=further_fields(further),
    )


def describe_load_error(error: BaseException) -> pb.HostError:
    """Returns the description of an exception that ended the import of the app."""
    is_exit = not isinstance(error, Exception)
    if isinstance(error, DefinitionError):
        message = exception_message(error)
    elif is_exit:
        message = f"the app exits when it is loaded: {type(error).__name__}({exception_message(error)})"
    else:
        message = exception_text(error)
    return pb.HostError(
        type=type(error).__name__,
        message=message + _refusal_hint(error),
        is_definition=is_exit or isinstance(error, DefinitionError),
        is_exhausted=_is_exhausted(error),
    )


def _refusal_hint(error: BaseException) -> str:
    """Returns a text that explains an error that the sandbox has caused."""
    return next(filter(None, map(refusal_hint, error_chain(error))), "")


def _is_exhausted(error: BaseException) -> bool:
    """Returns whether the error, a cause or a member of them is due to a lack of memory or of memory for threads."""
    return any(
        _is_exhaustion(each) or (isinstance(each, BaseExceptionGroup) and each.subgroup(_is_exhaustion) is not None)
        for each in error_chain(error, with_context=True)
    )


def _is_exhaustion(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and error.args == (_NO_THREAD,))


def _is_own_error(error: BaseException) -> bool:
    """Returns whether the error is Cornserve's, and not due to an exception of the app's code."""
    return isinstance(error, TaskError) and not isinstance(error, SideEffectError) and error.__cause__ is None


def _location(error: BaseException, source: str) -> str:
    """Returns the innermost line of the app's own source through which the error passed: "app.py:12 in invoke".

    If it has not passed the app, this is the line of its cause.
    """
    for each in error_chain(error):
        for frame in reversed(traceback.extract_tb(each.__traceback__)):
            if frame.filename.startswith(source):
                return f"{frame.filename.removeprefix(source)}:{frame.lineno} in {frame.name}"
    return ""


def _quoted(value: object) -> object:
    """Returns the value without the parts that error messages do not quote."""
    if isinstance(value, dict | list | tuple):
        return type(value)()
    if isinstance(value, bytes | bytearray):
        return value[:MAX_QUOTED_CHARACTERS].decode(errors="replace")
    if isinstance(value, str):
        return value[:MAX_QUOTED_CHARACTERS]
    return value if isinstance(value, bool | int | float | None) else repr(value)[:MAX_QUOTED_CHARACTERS]

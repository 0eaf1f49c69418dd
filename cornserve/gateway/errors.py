"""Errors in the formats of OpenAI and Anthropic: a status, a code, and a message with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from cornserve.app.unused_fields import UnusedFieldsError
from cornserve.exception_text import encodable, exception_text
from cornserve.task.errors import InvocationError, TaskError
from cornserve.validation_errors import describe_error, field_path, first_problems, further_fields, locate_error

Headers = Iterable[tuple[bytes, bytes]]

NO_ENDPOINTS = "NO_ENDPOINTS"
"""The code of an invocation whose executor cannot be found, although the app needs it."""

MAX_MESSAGE_CHARACTERS = 4000
"""Longer messages, which may quote the request, are cut."""


class AppCodeError(TaskError):
    """The code of an app raised an exception in its host, or ended the host.

    Args:
        reason: the exception with its type, or how the host ended.
        app, task: their names.
        location: the line of the app's source, or an empty text if it is unknown.
        traceback: the frames of the exception, without content of requests.
    """

    def __init__(self, reason: str, app: str, task: str, location: str = "", traceback: str = "") -> None:
        self.place = ", ".join(filter(None, (f"app {app!r}", f"task {task}", location)))
        self.traceback = traceback
        super().__init__(f"{reason} ({self.place})")


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    error: ErrorDetail


class ApiError(Exception):
    """An error that becomes the response."""

    def __init__(
        self, status: int, message: str, *, type: str | None = None, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(_HEADERS.get(status, {}))
        self.body = ErrorBody(
            error=ErrorDetail(
                message=encodable(message, MAX_MESSAGE_CHARACTERS),
                type=type or _default_type(status),
                param=param and encodable(param, MAX_MESSAGE_CHARACTERS),
                code=code,
            )
        )

    @property
    def content(self) -> bytes:
        """The response body."""
        return self.body.model_dump_json().encode()

    def content_for(self, path: str, headers: Headers, request_id: str) -> bytes:
        """Returns the response body in the format of the API of the request with this path and these headers."""
        return self.anthropic_content(request_id) if is_anthropic(path, headers) else self.content

    def anthropic_content(self, request_id: str) -> bytes:
        """Returns the response body in the format of Anthropic's API."""
        kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        error: dict[str, Any] = {"type": kind, "message": self.body.error.message}
        if self.body.error.code == "unknown_field" and self.body.error.param in _ANTHROPIC_CODES:
            error["details"] = {"error_code": _ANTHROPIC_CODES[self.body.error.param]}
        return to_json({"type": "error", "error": error, "request_id": request_id})

    @classmethod
    def from_exception(cls, error: Exception) -> ApiError:
        """Returns the error for an exception that a request to an app raised."""
        match error:
            case ApiError():
                return error
            case UnusedFieldsError():
                return cls(400, str(error), param=error.fields[0], code="unused_field")
            case InvocationError(code="INVALID_ARGUMENT"):
                return cls(400, error.message)
            case InvocationError(code="ABORTED" | "CANNOT_CONTINUE"):
                aborted = cls(500, str(error), code="executor_died")
                # OpenAI's clients would retry, and the request may have caused the executors to die.
                aborted.headers["x-should-retry"] = "false"
                return aborted
            case InvocationError(code=code) if code == NO_ENDPOINTS:
                missing = cls(503, str(error), code=code.lower())
                missing.headers = {"x-should-retry": "false"}
                return missing
            case AppCodeError():
                return cls(500, str(error), code="task_error")
            case InvocationError():
                return cls(_STATUS_BY_CODE.get(error.code, 500), str(error), code=error.code.lower())
            case _:
                return cls(500, exception_text(error), code="task_error")

    @classmethod
    def from_validation_error(
        cls,
        error: ValidationError,
        rename_field: Callable[[str], str] = str,
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Returns a 400 that names the first invalid field and the number of further ones.

        Args:
            rename_field: replaces the path at the start of a text, for bodies with other fields than the invalid value.
            reasons: why these fields are not supported.
        """
        first, fields = _first_problem(error)
        api_error = cls.from_problem(first, error.error_count() - 1, map(rename_field, fields), reasons)
        detail = api_error.body.error
        detail.message, detail.param = rename_field(detail.message), detail.param and rename_field(detail.param)
        return api_error

    @classmethod
    def from_problem(
        cls,
        first: Mapping[str, Any],
        further: int,
        fields: Iterable[str],
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Returns a 400 for the first element of `ValidationError.errors()`, and the number of further ones.

        Args:
            fields: the first fields of the further ones.
            reasons: why these fields are not supported.
        """
        param = field_path(first["loc"])
        names = "".join(f"{', ' if number else ': '}{field}" for number, field in enumerate(fields))
        more = f" (and {further} more{names})" if further else ""
        code = _CODE_BY_PROBLEM.get(first["type"], "invalid_value")
        return cls(400, f"{_describe(first, param, reasons)}{more}", param=param or None, code=code)


def _first_problem(error: ValidationError) -> tuple[Mapping[str, Any], list[str]]:
    """Returns the first of pydantic's errors, and the fields of the next ones, without these fields if there are
    many."""
    first, *further = sorted(first_problems(error), key=_removed_by_clients, reverse=True)
    return locate_error(first), further_fields(further)


_HEADERS = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}, 503: {"retry-after": "1"}}


def is_anthropic(path: str, headers: Headers) -> bool:
    """Returns whether a request is one of Anthropic's API, whose clients send a header with its version."""
    return path.startswith("/v1/messages") or any(name.lower() == b"anthropic-version" for name, _ in headers)


def _removed_by_clients(problem: Mapping[str, Any]) -> bool:
    """Returns whether the problem is a field without which clients send the request again, if an error is about it."""
    return problem["type"] == "extra_forbidden" and problem["loc"] in {(name,) for name in _ANTHROPIC_CODES}


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

_ANTHROPIC_CODES = {"thread": "thread_unsupported_request"}
"""Codes by unknown field, after which clients send the request without the field."""

_STATUS_BY_CODE = {
    "INVALID_ARGUMENT": 400,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

_JSON_TYPES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}

_CODE_BY_PROBLEM = {"extra_forbidden": "unknown_field", "json_invalid": "invalid_json"}


def _default_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def _describe(problem: Mapping[str, Any], param: str, reasons: Mapping[str, str]) -> str:
    match problem["type"]:
        case "extra_forbidden" if param in reasons:
            return f"unsupported field: {param!r}: {reasons[param]}"
        case "extra_forbidden":
            return f"unknown or unsupported field: {param!r}: remove it"
        case "missing":
            return f"missing field: {param!r}"
        case "json_invalid":
            return f"the body is not valid JSON: {problem['msg'].removeprefix('Invalid JSON: ')}"
        case "model_type" | "model_attributes_type" | "dict_type" if not param:
            return f"the body must be a JSON object, not {_JSON_TYPES.get(type(problem['input']), 'a number')}"
    described = describe_error(problem)
    return f"{param}: {described}" if param else described

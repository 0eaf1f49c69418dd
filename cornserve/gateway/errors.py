"""Errors as clients see them: OpenAI's shape, a status that tells whose fault it is, and what to do."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cornserve.task.errors import InvocationError

MAX_TEXT = 4000
"""Characters of a message: it may quote what was sent."""


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    error: ErrorDetail


class ApiError(Exception):
    """Becomes the response."""

    def __init__(
        self, status: int, message: str, *, type: str | None = None, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(_HEADERS.get(status, {}))
        self.body = ErrorBody(
            error=ErrorDetail(
                message=_writable(message), type=type or _type_of(status), param=param and _writable(param), code=code
            )
        )

    @property
    def content(self) -> bytes:
        """The response's body."""
        return self.body.model_dump_json().encode()


_HEADERS = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}, 503: {"retry-after": "1"}}


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def _writable(text: str) -> str:
    """What a request or an app said may be long, and may be no Unicode."""
    cut = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    return cut.encode(errors="replace").decode()


_STATUS_OF_CODE = {
    "INVALID_ARGUMENT": 400,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def of_request(error: Exception) -> ApiError:
    """What a client is told about an error that its request met."""
    match error:
        case ApiError():
            return error
        case InvocationError(code="INVALID_ARGUMENT"):
            return ApiError(400, error.message)
        case InvocationError(code="ABORTED"):
            aborted = ApiError(500, str(error), code="executor_died")
            # OpenAI's clients would send it again, and it may be what the executors died of.
            aborted.headers["x-should-retry"] = "false"
            return aborted
        case InvocationError():
            return ApiError(_STATUS_OF_CODE.get(error.code, 500), str(error), code=error.code.lower())
        case _:
            return ApiError(500, f"{type(error).__name__}: {error}", code="task_error")


def of_validation(error: ValidationError) -> ApiError:
    """A 400 that names the first wrong field, and how many more there are."""
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    # Tags of unions, which are no part of the body, have a colon.
    param = ".".join(part for part in map(str, first["loc"]) if ":" not in part)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ApiError(400, f"{_sentence(first, param)}{more}", param=param or None, code=_code(first))


def _sentence(problem: ErrorDetails, param: str) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return f"unknown or unsupported field: {param!r}"
        case "missing":
            return f"missing field: {param!r}"
        case "json_invalid":
            return f"the body is no JSON: {problem['msg']}"
    value: Any = problem["input"]
    given = "" if isinstance(value, dict | list) else f", not {str(value)[:80]!r}"
    return f"{param}: {problem['msg']}{given}" if param else f"{problem['msg']}{given}"


def _code(problem: ErrorDetails) -> str:
    return {"extra_forbidden": "unknown_field", "json_invalid": "invalid_json"}.get(problem["type"], "invalid_value")

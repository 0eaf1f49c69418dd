"""Errors of the Kubernetes API."""

from __future__ import annotations

import json
from http import HTTPStatus

from cornserve.kubernetes.resources import JsonObject

MAX_MESSAGE_CHARACTERS = 2000
"""Longer messages are cut: an invalid object can have hundreds of errors."""

UNTYPED_PATCH = "failed to create typed patch object"
"""The API server answers with HTTP status 500 when an applied object of a built-in type does not match its schema."""


class KubeConfigError(Exception):
    """The address of the API server or the credentials cannot be read."""


class KubeApiError(Exception):
    """A request that the API server refused, or could not answer.

    Args:
        status: the HTTP status, or 0 without a response.
        reason: the reason in the API server's `Status`, such as `NotFound`.
        details: the details in the API server's `Status`: the resource, and the causes by field.
    """

    def __init__(self, status: int, reason: str, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}

    @property
    def causes(self) -> list[JsonObject]:
        """The causes, each with `reason`, `message` and `field`."""
        return self.details.get("causes") or []


class KubeNotFoundError(KubeApiError):
    """The object or its namespace does not exist."""


class KubeUnknownTypeError(KubeApiError):
    """The API server does not have the type of the resource: its CRD is not installed."""


class KubeConflictError(KubeApiError):
    """The object has changed since the version that the write is based on, or another manager owns a field."""


class KubeAlreadyExistsError(KubeApiError):
    """An object with this name exists."""


class KubeGoneError(KubeApiError):
    """The resource version is older than the history that the API server keeps: list again."""


class KubeInvalidError(KubeApiError):
    """The object does not match its schema, or a rule or an admission policy refuses it."""


class KubeForbiddenError(KubeApiError):
    """The user does not have the permission, or an admission policy refuses the request."""


class KubeUnauthorizedError(KubeApiError):
    """The API server does not accept the credentials."""


class KubeUnavailableError(KubeApiError):
    """The API server cannot be reached, is overloaded or has failed. It may work again later."""


_BY_REASON = {
    "AlreadyExists": KubeAlreadyExistsError,
    "Expired": KubeGoneError,
    "Gone": KubeGoneError,
}

_BY_STATUS: dict[int, type[KubeApiError]] = {
    400: KubeInvalidError,
    401: KubeUnauthorizedError,
    403: KubeForbiddenError,
    404: KubeNotFoundError,
    409: KubeConflictError,
    410: KubeGoneError,
    413: KubeInvalidError,
    422: KubeInvalidError,
    429: KubeUnavailableError,
}


def unreachable_error(host: str, error: Exception) -> KubeUnavailableError:
    """Returns the error of a request without a response."""
    reason = str(error) or type(error).__name__
    return KubeUnavailableError(0, "Unreachable", f"cannot reach the Kubernetes API server {host}: {reason}")


def parse_object(host: str, content: bytes) -> JsonObject:
    """Returns the object in a response. Raises `KubeUnavailableError` for others, such as the page of a proxy."""
    try:
        parsed = json.loads(content)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        message = f"the Kubernetes API server {host} has sent no JSON object: does a proxy answer in its place?"
        raise KubeUnavailableError(0, "InvalidResponse", message)
    return parsed


def response_error(status: int, body: bytes) -> KubeApiError:
    """Returns the error of a response. The body is a `Status` object, or text if no handler has the path."""
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and parsed.get("kind") == "Status":
        return status_error(parsed, status)
    text = body.decode(errors="replace").strip()[:MAX_MESSAGE_CHARACTERS]
    if status == HTTPStatus.NOT_FOUND:
        return KubeUnknownTypeError(status, "NotFound", text)
    return _error_type(status, "", text)(
        status, "", text or f"the Kubernetes API server answered with HTTP status {status}"
    )


def status_error(body: JsonObject, status: int = 500) -> KubeApiError:
    """Returns the error that a `Status` object describes, in a response or in an event of a watch."""
    status = body.get("code") or status
    reason = body.get("reason") or ""
    message = str(body.get("message") or f"HTTP status {status}")[:MAX_MESSAGE_CHARACTERS]
    return _error_type(status, reason, message)(status, reason, message, body.get("details"))


def _error_type(status: int, reason: str, message: str) -> type[KubeApiError]:
    if reason in _BY_REASON:
        return _BY_REASON[reason]
    if message.startswith(UNTYPED_PATCH):
        return KubeInvalidError
    default = KubeUnavailableError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else KubeApiError
    return _BY_STATUS.get(status, default)

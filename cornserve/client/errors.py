"""Errors of calls to the gateway. Their messages are for users."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from cornserve.app.record import AppView
from cornserve.client.deadline import ADMIN_SECONDS, CONNECT_SECONDS
from cornserve.home import Home
from cornserve.instance import Instance


class ClientError(Exception):
    """A call of the gateway did not succeed."""


class ClientClosedError(ClientError):
    """The client is closed. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this client is closed: create another, and call it inside its `with` block")


class ArgumentError(ClientError, ValueError):
    """An argument is not valid. Nothing was sent."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"{name}: {reason}")


class EventLoopError(ClientError):
    """An `AsyncClient` was called in another event loop than before. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this client has connections of another event loop: create a client for each event loop")


class UnreachableError(ClientError):
    """No server listens at the address, its name is unknown, or TLS fails."""

    def __init__(self, url: str, problem: str = "") -> None:
        self.url = url
        if not problem:
            problem = "start it with `cornserve up`, or set CORNSERVE_URL"
            if _is_running(url):
                problem = "the instance runs, and its gateway is starting again: retry"
        super().__init__(f"cannot connect to Cornserve at {url}: {problem}")


def _connection_problem(error: BaseException | None) -> str:
    """Returns why TLS or the resolution of a name fails, and what to do, or an empty text if no server listens.

    Args:
        error: an error of the HTTP library, or one of its causes.
    """
    while error is not None:
        match error:
            case ssl.SSLCertVerificationError():
                return f"its certificate is not valid: {error.verify_message}: give its authority with SSL_CERT_FILE"
            case ssl.SSLError():
                return f"it does not use TLS as expected ({error.reason}): correct the URL"
            case socket.gaierror():
                return f"the name cannot be resolved ({error.strerror}): correct the URL"
            case OSError():
                return ""
        error = error.__cause__ or error.__context__  # The HTTP library does not name all causes.
    return ""


def _is_running(url: str) -> bool:
    """Returns whether an instance of this user has the URL, and its supervisor runs."""
    try:
        instance = Instance.find_running(Home.default())
    except (OSError, RuntimeError):  # RuntimeError: "~" of an unknown user.
        return False
    return instance is not None and instance.url == url


CLUSTER_UNREACHABLE = "cluster_unreachable"
"""The code of the error response of a tunnel that cannot reach the gateway in its cluster."""


class ClusterError(ClientError):
    """The gateway in a Kubernetes cluster cannot be used. Nothing was sent to it."""


class ClusterUnreachableError(ClusterError, UnreachableError):
    """A cluster's API server or gateway cannot be reached. Another attempt may succeed."""

    def __init__(self, message: str) -> None:
        ClientError.__init__(self, message)


class DisconnectedError(ClientError):
    """The gateway closed the connection before its response was complete."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"Cornserve at {url} closed the connection before its response was complete: retry, and "
            "see `cornserve status`"
        )


class ResponseTimeoutError(ClientError, TimeoutError):
    """The gateway accepted the connection, but did not respond in time."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self.seconds = seconds
        super().__init__(
            f"Cornserve at {url} did not respond within {seconds:g} seconds: retry, set a longer timeout, or see "
            "`cornserve doctor`"
        )


class ApiStatusError(ClientError):
    """The gateway responded with an error."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        super().__init__(message)


class UnexpectedResponseError(ClientError):
    """A server responded that is not a Cornserve gateway."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} did not respond like a Cornserve gateway: check the URL")


class DeployTargetError(ClientError):
    """The target of a deployment is not valid. Nothing was sent."""


class DeploymentError(ClientError):
    """An app failed to start."""

    def __init__(self, view: AppView) -> None:
        self.view = view
        logs = "".join(f"\n  | {line}" for line in view.status.logs)
        super().__init__(f"{view.name} failed to start: {view.status.message}{logs}")


class AppDeletedError(ClientError):
    """The app was deleted while it was being deployed."""

    def __init__(self, app: str) -> None:
        self.app = app
        super().__init__(f"{app} was deleted while it was being deployed: deploy it again")


class WaitTimeoutError(ClientError, TimeoutError):
    """An app did not reach the awaited state in time. It may still do so."""


class AppNotLoadedError(WaitTimeoutError):
    """The gateway has not loaded an app in the time that it may take, which is shorter than that of the caller."""


@contextmanager
def translated_errors(url: str, read_timeout: float | None) -> Iterator[None]:
    """Converts the HTTP library's errors to errors of this module."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise ResponseTimeoutError(url, CONNECT_SECONDS) from error
    except httpx.ConnectError as error:
        raise UnreachableError(url, _connection_problem(error)) from error
    except httpx.TimeoutException as error:
        raise ResponseTimeoutError(url, ADMIN_SECONDS if read_timeout is None else read_timeout) from error
    except httpx.InvalidURL as error:
        raise ClientError(f"cannot send the request to {url}: {error}: correct the URL and the names in it") from error
    except httpx.TransportError as error:
        raise DisconnectedError(url) from error


@contextmanager
def unexpected_response(url: str) -> Iterator[None]:
    """Converts errors of code that parses a response to `UnexpectedResponseError`."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise UnexpectedResponseError(url) from error


def response_error(status: int, content: bytes) -> ClientError:
    """Returns the error for a response with an error status, of a gateway or of a tunnel to one."""
    error = error_from_body(status, content)
    return ClusterUnreachableError(error.message) if error.code == CLUSTER_UNREACHABLE else error


class _ErrorBody(BaseModel):
    message: str
    param: str | None = None
    code: str | None = None


def error_from_body(status: int, content: bytes) -> ApiStatusError:
    """Returns the error for a response with an error status."""
    text = content.decode(errors="replace")
    try:
        return error_from_json(status, from_json(text), text)
    except ValueError:
        return error_from_json(status, None, text)


def error_from_json(status: int, document: Any, text: str) -> ApiStatusError:
    """Returns the error in a document in the format of OpenAI's API. Quotes `text` if it has another format."""
    try:
        body = _ErrorBody.model_validate(document["error"])
    except (TypeError, KeyError, ValidationError):
        return ApiStatusError(status, f"HTTP status {status}: {text[:200].strip() or 'without a message'}")
    return ApiStatusError(status, body.message, body.param, body.code)

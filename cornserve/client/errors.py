"""What can go wrong when the gateway is called. Messages are for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from cornserve.app.record import AppView
from cornserve.client.deadline import ADMIN_SECONDS, CONNECT_SECONDS


class ClientError(Exception):
    """A call of the gateway did not succeed."""


class ClosedError(ClientError):
    """The client was closed, and nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this client is closed: make another, and call it inside its `with` block")


class ArgumentError(ClientError, ValueError):
    """What was given cannot be used, and nothing was sent."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"{name}: {reason}")


class LoopError(ClientError):
    """An `AsyncClient` was called in another event loop than before, and nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this client belongs to another event loop, whose connections it has: make one for each loop")


class UnreachableError(ClientError):
    """Nothing listens at the address."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"no Cornserve at {url}: start one with `cornserve up`")


class DisconnectedError(ClientError):
    """The gateway went away before its answer was complete."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"Cornserve at {url} went away before its answer was complete")


class SilentError(ClientError, TimeoutError):
    """The gateway is there, but did not answer in time."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self.seconds = seconds
        super().__init__(f"Cornserve at {url} did not answer within {seconds:g} seconds")


class ApiError(ClientError):
    """The gateway refused, or failed."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        super().__init__(message)


class StrangerError(ClientError):
    """Something answers, but no gateway."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} does not answer like a Cornserve gateway")


class TargetError(ClientError):
    """There is nothing that could be deployed. Nothing was sent."""


class DeploymentError(ClientError):
    """What was deployed does not serve."""

    def __init__(self, view: AppView) -> None:
        self.view = view
        logs = "".join(f"\n  | {line}" for line in view.status.logs)
        super().__init__(f"{view.name} does not serve: {view.status.message}{logs}")


class DeletedError(ClientError):
    """The app is gone."""

    def __init__(self, app: str) -> None:
        self.app = app
        super().__init__(f"{app} was deleted while it was being deployed")


class NotInTimeError(ClientError, TimeoutError):
    """What was waited for has not happened. It may still."""


@contextmanager
def translated(url: str, patience: float | None) -> Iterator[None]:
    """Turns the HTTP library's errors into those above. `patience`: how long an answer was waited for."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise SilentError(url, CONNECT_SECONDS) from error
    except httpx.ConnectError as error:
        raise UnreachableError(url) from error
    except httpx.TimeoutException as error:
        raise SilentError(url, ADMIN_SECONDS if patience is None else patience) from error
    except httpx.InvalidURL as error:
        raise ClientError(f"this cannot be asked of {url}: {error}") from error
    except httpx.TransportError as error:
        raise DisconnectedError(url) from error


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Around what reads an answer: whoever sends something else is no gateway."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise StrangerError(url) from error


class _ErrorBody(BaseModel):
    message: str
    param: str | None = None
    code: str | None = None


def refusal(status: int, content: bytes) -> ApiError:
    """What an answer with an error's status says."""
    text = content.decode(errors="replace")
    try:
        return told(status, from_json(text), text)
    except ValueError:
        return told(status, None, text)


def told(status: int, answer: Any, text: str) -> ApiError:
    """The error in an answer of OpenAI's shape; something else is quoted."""
    try:
        body = _ErrorBody.model_validate(answer["error"])
    except (TypeError, KeyError, ValidationError):
        return ApiError(status, f"HTTP status {status}: {text[:200].strip() or 'no explanation'}")
    return ApiError(status, body.message, body.param, body.code)

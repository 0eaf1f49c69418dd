"""What can be asked of the gateway. What cannot raises `ArgumentError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx2 as httpx
from pydantic import BaseModel

from cornserve.app.record import AppSpec
from cornserve.client.arguments import as_json, check_timeout, in_path
from cornserve.client.deadline import ADMIN_SECONDS, CONNECT_SECONDS

Messages = Sequence[Mapping[str, Any]]

GRACE_SECONDS = 2.0
"""The gateway ends a request when its time is over, and says so; the client waits for that a little longer."""

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""Of connections. The gateway bounds what it takes; a call that waited in here would look slow."""

_EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Call:
    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: str
    body: bytes | None = None
    accept: str = "application/json"
    patience: float | None = ADMIN_SECONDS
    """Seconds of silence after which there is no answer to be hoped for."""
    timeout: float | None = None
    """Seconds after which the gateway gives up, and nobody wants the answer any more."""

    @property
    def is_admin(self) -> bool:
        return self.path.startswith("/admin/")

    @property
    def headers(self) -> dict[str, str]:
        body = {} if self.body is None else {"Content-Type": "application/json"}
        timeout = {} if self.timeout is None else {"X-Request-Timeout": f"{self.timeout:g}"}
        return {"Accept": self.accept} | body | timeout

    @property
    def timeouts(self) -> httpx.Timeout:
        return httpx.Timeout(ADMIN_SECONDS, connect=CONNECT_SECONDS, read=self.patience)


def deploy(app: str, spec: AppSpec) -> Call:
    return Call("PUT", _app(app), as_json("what", spec.model_dump(exclude_unset=True)))


def scale(app: str, replicas: int) -> Call:
    return Call("PUT", f"{_app(app)}/scale", as_json("replicas", {"replicas": replicas}))


def apps() -> Call:
    return Call("GET", "/admin/v1/apps")


def app(name: str) -> Call:
    return Call("GET", _app(name))


def delete(app: str) -> Call:
    return Call("DELETE", _app(app))


def logs(app: str, lines: int) -> Call:
    return Call("GET", f"{_app(app)}/logs?lines={lines}")


def events(app: str, patience: float) -> Call:
    return Call("GET", f"{_app(app)}/events", accept=_EVENTS, patience=patience)


def models() -> Call:
    return Call("GET", "/v1/models")


def invoke(app: str, request: BaseModel | Mapping[str, Any], timeout: float | None, *, stream: bool = False) -> Call:
    accept = _EVENTS if stream else "application/json"
    return _work(f"/v1/apps/{in_path(app)}/invoke", as_json("request", request), timeout, accept)


def chat(app: str, messages: Messages, options: Mapping[str, Any], timeout: float | None, *, stream: bool) -> Call:
    if "stream" in options:
        raise TypeError("`chat` gives an answer in pieces and `complete` gives it whole: neither takes `stream`")
    streaming = {"stream": True} if stream else {}
    body = {"model": app, "messages": list(messages), **streaming, **options}
    content = as_json("messages or options", body)
    return _work("/v1/chat/completions", content, timeout, _EVENTS if stream else "application/json")


def _work(path: str, body: bytes, timeout: float | None, accept: str) -> Call:
    """A model takes as long as it takes, unless a time is given."""
    check_timeout(timeout)
    patience = None if timeout is None else timeout + GRACE_SECONDS
    return Call("POST", path, body, accept, patience, timeout)


def _app(name: str) -> str:
    return f"/admin/v1/apps/{in_path(name)}"

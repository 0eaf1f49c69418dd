"""Requests to the gateway. Arguments that cannot be sent raise `ArgumentError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import httpx2 as httpx
from pydantic import BaseModel

from cornserve.app.spec import AppSpec
from cornserve.client.arguments import check_timeout, encode_form, encode_json, quote_app_name, read_file
from cornserve.client.deadline import ADMIN_SECONDS, CONNECT_SECONDS, RESPONSE_SECONDS

Messages = Sequence[Mapping[str, Any]]

GRACE_SECONDS = 2.0
"""Time that the client waits for the gateway's error after a request's timeout."""

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""Connections are unlimited: the gateway limits them, and a call that waits in the client would appear slow."""

_EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class ApiCall:
    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: str
    body: bytes | None = None
    accept: str = "application/json"
    read_timeout: float | None = RESPONSE_SECONDS
    """Seconds without any data after which the client abandons the response."""
    timeout: float | None = None
    """Seconds after which the gateway cancels the request."""
    content_type: str = "application/json"
    """The type of the body."""

    @property
    def is_admin(self) -> bool:
        return self.path.startswith("/admin/")

    @property
    def headers(self) -> dict[str, str]:
        body = {} if self.body is None else {"Content-Type": self.content_type}
        timeout = {} if self.timeout is None else {"X-Request-Timeout": f"{self.timeout:g}"}
        return {"Accept": self.accept} | body | timeout

    @property
    def timeouts(self) -> httpx.Timeout:
        return httpx.Timeout(ADMIN_SECONDS, connect=CONNECT_SECONDS, read=self.read_timeout)


def deploy(app: str, spec: AppSpec) -> ApiCall:
    body = encode_json("target", spec.model_dump(exclude_unset=True))
    return ApiCall("PUT", _app(app), body, read_timeout=ADMIN_SECONDS)


def scale(
    app: str,
    replicas: int | None,
    executors: Mapping[str, int] | None,
    rate: float | None,
    gpus: int | None,
    hold_seconds: float | None,
) -> ApiCall:
    numbers = {
        "replicas": replicas,
        "executors": executors,
        "rate": rate,
        "gpus": gpus,
        "hold_seconds": hold_seconds,
    }
    given = {name: number for name, number in numbers.items() if number is not None}
    return ApiCall("PUT", f"{_app(app)}/scale", encode_json("replicas, executors, rate, gpus or hold_seconds", given))


def approve(app: str) -> ApiCall:
    return ApiCall("PUT", f"{_app(app)}/scale", encode_json("approve", {"approve": True}))


def restart(app: str, executors: Sequence[str]) -> ApiCall:
    path, query = f"{_app(app)}/restart", urlencode([("executor", name) for name in executors])
    return ApiCall("POST", f"{path}?{query}" if query else path)


def history(app: str) -> ApiCall:
    return ApiCall("GET", f"{_app(app)}/history")


def apps() -> ApiCall:
    return ApiCall("GET", "/admin/v1/apps")


def overview() -> ApiCall:
    return ApiCall("GET", "/admin/v1/overview")


def costs(minutes: float) -> ApiCall:
    return ApiCall("GET", f"/admin/v1/costs?minutes={minutes:g}")


def live(app: str) -> ApiCall:
    return ApiCall("GET", f"{_app(app)}/live")


def app(name: str, memory: bool) -> ApiCall:
    return ApiCall("GET", f"{_app(name)}?memory=true" if memory else _app(name))


def engines(app: str) -> ApiCall:
    return ApiCall("GET", f"{_app(app)}/engines")


def graph(app: str) -> ApiCall:
    return ApiCall("GET", f"{_app(app)}/graph")


def delete(app: str) -> ApiCall:
    return ApiCall("DELETE", _app(app))


def logs(app: str, lines: int, replica: str | None) -> ApiCall:
    only = "" if replica is None else f"&replica={quote(replica, safe='', errors='replace')}"
    return ApiCall("GET", f"{_app(app)}/logs?lines={lines}{only}")


def events(app: str, read_timeout: float) -> ApiCall:
    return ApiCall("GET", f"{_app(app)}/events", accept=_EVENTS, read_timeout=read_timeout)


def models() -> ApiCall:
    return ApiCall("GET", "/v1/models")


def invoke(app: str, request: BaseModel | Mapping[str, Any], timeout: float | None, *, stream: bool = False) -> ApiCall:
    accept = _EVENTS if stream else "application/json"
    return _model_call(f"/v1/apps/{quote_app_name(app)}/invoke", encode_json("request", request), timeout, accept)


def record(app: str, request: BaseModel | Mapping[str, Any], timeout: float | None) -> ApiCall:
    return _model_call(
        f"/admin/v1/apps/{quote_app_name(app)}/record", encode_json("request", request), timeout, "application/json"
    )


def chat(app: str, messages: Messages, options: Mapping[str, Any], timeout: float | None, *, stream: bool) -> ApiCall:
    if "stream" in options:
        raise TypeError("`stream` is not an option: `chat` streams its response, and `complete` returns it as a whole")
    streaming = {"stream": True} if stream else {}
    body = {"model": app, "messages": list(messages), **streaming, **options}
    content = encode_json("messages or options", body)
    return _model_call("/v1/chat/completions", content, timeout, _EVENTS if stream else "application/json")


def transcribe(
    app: str, audio: Path | bytes, options: Mapping[str, Any], timeout: float | None, *, translate: bool
) -> ApiCall:
    if "stream" in options or options.get("response_format") == "text":
        raise TypeError("`transcribe` returns a whole response as JSON: omit `stream`, and the response format `text`")
    body, content_type = encode_form({"model": app, **options}, {"file": read_file("audio", audio)})
    path = "/v1/audio/translations" if translate else "/v1/audio/transcriptions"
    return _model_call(path, body, timeout, "application/json", content_type)


def generate_images(
    app: str, prompt: str, options: Mapping[str, Any], timeout: float | None, *, stream: bool
) -> ApiCall:
    if "stream" in options:
        raise TypeError(
            "`stream` is not an option: `image_events` streams, and `generate_images` returns a whole response"
        )
    streaming = {"stream": True} if stream else {}
    body = encode_json("prompt or options", {"model": app, "prompt": prompt, **streaming, **options})
    return _model_call("/v1/images/generations", body, timeout, _EVENTS if stream else "application/json")


def edit_image(
    app: str, image: Path | bytes, prompt: str, options: Mapping[str, Any], timeout: float | None, *, stream: bool
) -> ApiCall:
    if "stream" in options:
        raise TypeError("`stream` is not an option: `edit_events` streams, and `edit_image` returns a whole response")
    fields = {"model": app, "prompt": prompt, **({"stream": True} if stream else {}), **options}
    body, content_type = encode_form(fields, {"image": read_file("image", image)})
    return _model_call("/v1/images/edits", body, timeout, _EVENTS if stream else "application/json", content_type)


def speak(app: str, text: str, options: Mapping[str, Any], timeout: float | None, *, events: bool = False) -> ApiCall:
    if "stream_format" in options:
        raise TypeError("`stream_format` is not an option: `speak` streams the audio file")
    streaming = {"stream_format": "sse"} if events else {}
    body = encode_json("text or options", {"model": app, "input": text, **streaming, **options})
    return _model_call("/v1/audio/speech", body, timeout, _EVENTS if events else "audio/*")


def _model_call(
    path: str, body: bytes, timeout: float | None, accept: str, content_type: str = "application/json"
) -> ApiCall:
    check_timeout(timeout)
    read_timeout = None if timeout is None else timeout + GRACE_SECONDS
    return ApiCall("POST", path, body, accept, read_timeout, timeout, content_type)


def _app(name: str) -> str:
    return f"/admin/v1/apps/{quote_app_name(name)}"

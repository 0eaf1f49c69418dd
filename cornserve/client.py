"""A client of Cornserve's gateway.

with Client() as client:
    client.deploy("smollm2", AppSpec(model="/models/smollm2"))
    for app in client.events("smollm2"):
        print(app.status.phase)
        if app.settled:
            break
    print("".join(client.chat("smollm2", [{"role": "user", "content": "Hello!"}])))
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

import httpx2 as httpx
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from cornserve.app.record import AppSpec, AppView, Phase
from cornserve.home import Home
from cornserve.instance import Instance

DEFAULT_URL = "http://127.0.0.1:8000"

CONNECT_SECONDS = 5.0
ADMIN_SECONDS = 60.0
EVENTS_SECONDS = 5.0
"""A stream of events that is silent for so long is opened anew: it may have been lost without a sign."""

RETRY_SECONDS = 0.05

LOAD_SECONDS = 10.0


class ClientError(Exception):
    """A call of the gateway did not succeed; the message is one for people."""


class UnreachableError(ClientError):
    """Nothing answers at the address."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"no Cornserve at {url}: start one with `cornserve up`")


class DisconnectedError(ClientError):
    """The gateway went away before its answer was complete."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"Cornserve at {url} went away before its answer was complete")


class SilentError(ClientError):
    """The gateway is there, but does not answer."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        super().__init__(f"Cornserve at {url} did not answer within {seconds:g} seconds")


class ApiError(ClientError):
    """The gateway refused, or failed."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        super().__init__(message)


class ReplicaLog(BaseModel):
    """The last lines that a replica wrote."""

    id: str
    lines: list[str]


class Item(NamedTuple):
    """The next item of one of a response's streams."""

    stream: str
    item: Any


class Result(NamedTuple):
    """The response, once it is complete."""

    response: Any


class Client:
    """Talks to the gateway at `url`.

    Args:
        url: by default `CORNSERVE_URL`, else the instance that runs for `CORNSERVE_HOME`, else port 8000 here.
        api_key: by default `CORNSERVE_API_KEY`.

    Every call raises the `ClientError` that applies.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self.url = (url or os.environ.get("CORNSERVE_URL") or _running_url() or DEFAULT_URL).rstrip("/")
        api_key = api_key or os.environ.get("CORNSERVE_API_KEY")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(ADMIN_SECONDS, connect=CONNECT_SECONDS),
            trust_env=not _is_loopback(self.url),  # a proxy would look for 127.0.0.1 on its own machine
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def deploy(self, name: str, spec: AppSpec) -> AppView:
        """Creates the app, or rolls it over to `spec`. Does not wait until it serves: see `events`."""
        body = spec.model_dump(exclude_defaults=True)
        return AppView.model_validate(self._call("PUT", _app(name), body))

    def apps(self) -> list[AppView]:
        return TypeAdapter(list[AppView]).validate_python(self._call("GET", "/admin/v1/apps")["apps"])

    def app(self, name: str) -> AppView:
        return AppView.model_validate(self._call("GET", _app(name)))

    def models(self) -> list[str]:
        """What the gateway takes requests for."""
        return [model["id"] for model in self._call("GET", "/v1/models")["data"]]

    def delete(self, name: str) -> None:
        self._call("DELETE", _app(name))

    def logs(self, name: str, lines: int = 100) -> list[ReplicaLog]:
        answer = self._call("GET", f"{_app(name)}/logs?lines={lines}")
        return TypeAdapter(list[ReplicaLog]).validate_python(answer["replicas"])

    def events(self, name: str, *, timeout: float | None = None) -> Iterator[AppView]:
        """The app as it is now, then again after each change, until it is deleted.

        When it says that the app serves, the gateway takes requests for it. Raises `TimeoutError` after so many
        seconds.
        """
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        seen = -1
        while True:
            patience = max(RETRY_SECONDS, min(EVENTS_SECONDS, deadline - time.monotonic()))
            try:
                for event, data in self._events("GET", f"{_app(name)}/events", patience=patience):
                    if event == "deleted":
                        return
                    if data and (view := AppView.model_validate_json(data)).version > seen:
                        seen = view.version
                        if view.phase is Phase.SERVING:
                            self._await_model(name)
                        yield view
                    if time.monotonic() >= deadline:
                        break
                time.sleep(RETRY_SECONDS)
            except (SilentError, DisconnectedError):
                time.sleep(RETRY_SECONDS)
            except ApiError as error:
                if error.status == 404 and seen >= 0:
                    return
                raise
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the app {name!r} was watched for {timeout:g} seconds")

    def invoke(self, name: str, request: BaseModel | Mapping[str, Any]) -> Any:
        """The app's response, as JSON gives it; streams are null."""
        return self._call("POST", f"/v1/apps/{quote(name, safe='')}/invoke", request, patience=None)

    def stream(self, name: str, request: BaseModel | Mapping[str, Any]) -> Iterator[Item | Result]:
        """The items of the response's streams as they arrive, at last the response."""
        for event, data in self._events("POST", f"/v1/apps/{quote(name, safe='')}/invoke", request, patience=None):
            match event, from_json(data or "null"):
                case "item", {"stream": stream, "item": item}:
                    yield Item(stream, item)
                case "result", response:
                    yield Result(response)
                    return
                case "error", answer:
                    raise _error(200, answer, data)
        raise DisconnectedError(self.url)

    def chat(self, app: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> Iterator[str]:
        """The answer, piece by piece. `options` are those of OpenAI's chat completions (`max_tokens`, …)."""
        body = {"model": app, "messages": list(messages), "stream": True, **options}
        for _, data in self._events("POST", "/v1/chat/completions", body, patience=None):
            if data == "[DONE]":
                return
            match from_json(data or "null"):
                case {"error": _} as answer:
                    raise _error(200, answer, data)
                case {"choices": [{"delta": {"content": str(text)}}, *_]} if text:
                    yield text
        raise DisconnectedError(self.url)

    def complete(self, app: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """OpenAI's chat completion, as JSON gives it."""
        body = {"model": app, "messages": list(messages), **options}
        return self._call("POST", "/v1/chat/completions", body, patience=None)

    def _await_model(self, name: str) -> None:
        """The gateway loads an app a moment after the controller has written that it serves."""
        deadline = time.monotonic() + LOAD_SECONDS
        while name not in self.models() and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)

    def _call(self, method: str, path: str, body: Any = None, *, patience: float | None = ADMIN_SECONDS) -> Any:
        with self._open(method, path, body, patience=patience) as response:
            content = response.read()
        try:
            return from_json(content or b"null")
        except ValueError:
            raise ApiError(response.status_code, f"{self.url} does not answer like a Cornserve gateway") from None

    def _events(self, method: str, path: str, body: Any = None, *, patience: float | None) -> Iterator[tuple[str, str]]:
        """Server-sent events, as (event, data). A comment, which keeps the connection alive, has no data."""
        with self._open(method, path, body, patience=patience, accept="text/event-stream") as response:
            event, data = "message", list[str]()
            for line in response.iter_lines():
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                match field:
                    case "event":
                        event = value
                    case "data":
                        data.append(value)
                    case "" if not line and data:
                        yield event, "\n".join(data)
                        event, data = "message", []
                    case "" if line:
                        yield "comment", ""

    @contextmanager
    def _open(
        self, method: str, path: str, body: Any = None, *, patience: float | None, accept: str = "application/json"
    ) -> Iterator[httpx.Response]:
        """A successful response, whose body is yet to be read. `patience`: seconds between two pieces of it."""
        try:
            with self._http.stream(
                method,
                path,
                content=None if body is None else to_json(body),
                headers={"Accept": accept} | ({} if body is None else {"Content-Type": "application/json"}),
                timeout=httpx.Timeout(ADMIN_SECONDS, connect=CONNECT_SECONDS, read=patience),
            ) as response:
                if not response.is_success:
                    raise _error_of(response)
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UnreachableError(self.url) from error
        except httpx.TimeoutException as error:
            raise SilentError(self.url, patience or ADMIN_SECONDS) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ClientError(f"{self.url!r} is no address of a gateway: {error}") from error
        except httpx.TransportError as error:
            raise DisconnectedError(self.url) from error


class _ErrorBody(BaseModel):
    message: str
    param: str | None = None
    code: str | None = None


def _error_of(response: httpx.Response) -> ApiError:
    text = response.read().decode(errors="replace")
    try:
        return _error(response.status_code, from_json(text), text)
    except ValueError:
        return _error(response.status_code, None, text)


def _error(status: int, answer: Any, text: str) -> ApiError:
    try:
        body = _ErrorBody.model_validate(answer["error"])
    except (TypeError, KeyError, ValidationError):
        return ApiError(status, f"HTTP status {status}: {text[:200].strip() or 'no explanation'}")
    return ApiError(status, body.message, body.param, body.code)


def _app(name: str) -> str:
    return f"/admin/v1/apps/{quote(name, safe='')}"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _running_url() -> str | None:
    instance = Instance.running(Home.default())
    return instance.url if instance is not None else None

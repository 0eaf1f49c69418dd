"""The client for programs that wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2 as httpx
from pydantic import BaseModel

from cornserve.app.app import App
from cornserve.app.record import AppSpec, AppView, Balance, ReplicaLog
from cornserve.client import answers, calls, retries
from cornserve.client.address import Address
from cornserve.client.answers import ChatPieces, Item, Pieces, Reader, ResponsePieces, Result
from cornserve.client.arguments import check_timeout, usable_environment
from cornserve.client.calls import Call, Messages
from cornserve.client.deadline import Deadline
from cornserve.client.errors import (
    ClientError,
    ClosedError,
    DeletedError,
    DisconnectedError,
    SilentError,
    refusal,
    translated,
    understood,
)
from cornserve.client.events import Event, EventParser
from cornserve.client.progress import Progress
from cornserve.client.target import Target, resolve
from cornserve.client.watch import PAUSE_SECONDS, Loading, Watch, concerns, serving

T = TypeVar("T")


class Client:
    """Talks to the gateway at `url`. Threads may share one; a forked process needs its own.

    Args:
        url: by default `CORNSERVE_URL`, else the instance that runs for `CORNSERVE_HOME`, else port 8000 here.
        api_key: by default `CORNSERVE_API_KEY`.
        admin_token: for the administration; by default `CORNSERVE_ADMIN_TOKEN`. A missing one is replaced by the other.
        retries: how often a call is made again that cannot do anything twice: one that did not reach the gateway, or
            only asks.

    Making one, and every call, raises the `ClientError` that applies: `ArgumentError` for what cannot even be sent.
    Of another type than the signature has, it may be a `TypeError`. Where a call has a `timeout`, it is in seconds.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, admin_token: str | None = None, *, retries: int = 2
    ) -> None:
        self._address = Address.of(url, api_key, admin_token)
        self._retries = retries
        with usable_environment():
            self._http = httpx.Client(trust_env=not self._address.is_loopback, limits=calls.LIMITS)

    @property
    def url(self) -> str:
        return self._address.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def deploy(
        self,
        what: App | AppSpec | Target | Path | str,
        *,
        name: str | None = None,
        replicas: int | None = None,
        balance: Balance = "least-loaded",
        shares: Mapping[str, float] | None = None,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: Callable[[str], object] = lambda line: None,
    ) -> AppView:
        """Creates the app, or rolls it over, and waits until it serves.

        Args:
            what: an `App` whose source is at hand (see `cornserve.client.capture`); a file (`.py`); source (text of
                several lines); a model directory or Hugging Face id; or the spec that is to be stored.
            name: by default, the one in the source, or the model's.
            replicas: of each executor. By default, as many as there are, and 1 of a new app.
            balance: how requests are divided among them.
            shares: how requests are divided among the paths of the model's family (`{"e-l": 1}`); by default, the first
                serves them all. A spec has its own `replicas`, `balance` and `shares`.
            wait: if not, the app is only stored; `follow` it, or look at `app`.
            timeout: of the waiting. The deployment goes on.
            on_progress: is told what happens, in words: `print` will do.
        Raises:
            TargetError: there is nothing that could be deployed.
            DeploymentError: it does not start. What served before serves on.
            NotInTimeError: it does not serve yet.
        """
        check_timeout(timeout)
        target = resolve(what, name=name, replicas=replicas, balance=balance, shares=shares)
        deployed = self._call(calls.deploy(target.name, target.spec), answers.view)
        if not wait:
            return deployed
        progress = Progress()
        view = deployed
        for view in self.follow(deployed, timeout=timeout):
            for line in progress.take(view):
                on_progress(line)
        return serving(view)

    def follow(self, deployed: AppView, *, timeout: float | None = None) -> Generator[AppView, None, None]:
        """The app after each change, until what was deployed serves or has failed.

        Raises `DeletedError` or `NotInTimeError` if it comes to neither.
        """
        for view in self.events(deployed.name, timeout=timeout):
            if concerns(view, deployed):
                yield view
                if view.settled:
                    return
        raise DeletedError(deployed.name)

    def events(self, app: str, *, timeout: float | None = None) -> Generator[AppView, None, None]:
        """The app as it is now, then again after each change, until it is deleted.

        When it says that the app serves, the gateway takes requests for that generation. Raises `NotInTimeError`
        when the time is over.
        """
        watch = Watch(app, timeout)
        while not watch.is_over:
            try:
                with closing(self._events(watch.call())) as events:
                    for event in events:
                        with understood(self.url):
                            view = watch.take(event)
                        if view is not None:
                            self._until_loaded(view, watch.deadline)
                            watch.saw(view)
                            yield view
                        if watch.is_over:
                            return
            except ClientError as error:
                watch.broke(error)
            time.sleep(PAUSE_SECONDS)

    def apps(self) -> list[AppView]:
        return self._call(calls.apps(), answers.views)

    def app(self, name: str) -> AppView:
        """What is deployed, and how far it is."""
        return self._call(calls.app(name), answers.view)

    def scale(self, app: str, replicas: int) -> AppView:
        """Sets how many replicas of each executor run. Does not wait: see `events` and `AppView.is_scaled`."""
        return self._call(calls.scale(app, replicas), answers.view)

    def delete(self, app: str) -> None:
        self._call(calls.delete(app), answers.document)

    def logs(self, app: str, lines: int = 100) -> list[ReplicaLog]:
        """The last lines of each replica."""
        return self._call(calls.logs(app, lines), answers.replica_logs)

    def models(self) -> list[str]:
        """What the gateway takes requests for."""
        return self._call(calls.models(), answers.models)

    def invoke(self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None) -> Any:
        """The app's response, as JSON gives it; streams are null."""
        return self._call(calls.invoke(app, request, timeout), answers.document)

    def stream(
        self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None
    ) -> Generator[Item | Result, None, None]:
        """The items of the response's streams as they arrive, at last the response."""
        return self._stream(calls.invoke(app, request, timeout, stream=True), ResponsePieces())

    def chat(
        self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any
    ) -> Generator[str, None, None]:
        """The answer, piece by piece. `options` are those of OpenAI's chat completions (`max_tokens`, …)."""
        return self._stream(calls.chat(app, messages, options, timeout, stream=True), ChatPieces())

    def complete(self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any) -> Any:
        """OpenAI's chat completion, as JSON gives it."""
        return self._call(calls.chat(app, messages, options, timeout, stream=False), answers.document)

    def _until_loaded(self, view: AppView, deadline: Deadline) -> None:
        loading = Loading(view, deadline)
        while loading.matters and not loading.is_over(self._call(calls.models(), answers.served)):
            time.sleep(PAUSE_SECONDS)

    def _call(self, call: Call, read: Reader[T]) -> T:
        def attempt() -> T:
            with closing(self._send(call)) as response, translated(self.url, call.patience):
                return answers.read(self.url, response.read(), read)

        return self._persistently(call, attempt)

    def _stream(self, call: Call, pieces: Pieces[T]) -> Generator[T, None, None]:
        with closing(self._events(call)) as events:
            for event in events:
                yield from answers.taken(self.url, pieces, event)
                if pieces.is_complete:
                    return
        raise DisconnectedError(self.url)

    def _events(self, call: Call) -> Generator[Event, None, None]:
        deadline, parser = Deadline(call.patience if call.timeout else None), EventParser()
        response = self._persistently(call, lambda: self._send(call))
        with closing(response), translated(self.url, call.patience):
            for data in response.iter_bytes():
                if deadline.is_over:
                    raise SilentError(self.url, deadline.seconds)
                yield from parser.take(data)

    def _persistently(self, call: Call, attempt: Callable[[], T]) -> T:
        for pause in retries.pauses(self._retries):
            try:
                return attempt()
            except ClientError as error:
                if not retries.is_safe(call, error):
                    raise
            time.sleep(pause)
        return attempt()

    def _send(self, call: Call) -> httpx.Response:
        """A successful response, whose body is yet to be read."""
        if self._http.is_closed:
            raise ClosedError
        with translated(self.url, call.patience):
            request = self._http.build_request(
                call.method,
                self.url + call.path,
                content=call.body,
                headers=self._address.headers(call),
                timeout=call.timeouts,
            )
            response = self._http.send(request, stream=True)
            if response.is_success:
                return response
            with closing(response):
                raise refusal(response.status_code, response.read())

"""The client for event loops. What the methods do is told in `client`, which has the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
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
    LoopError,
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


class AsyncClient:
    """`Client`, for one event loop, whose tasks may share it: the first that it is called in.

    A stream that is left early is best closed: `async with aclosing(client.chat(…)) as pieces:`.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, admin_token: str | None = None, *, retries: int = 2
    ) -> None:
        self._address = Address.of(url, api_key, admin_token)
        self._retries = retries
        self._loop: asyncio.AbstractEventLoop | None = None
        with usable_environment():
            self._http = httpx.AsyncClient(trust_env=not self._address.is_loopback, limits=calls.LIMITS)

    @property
    def url(self) -> str:
        return self._address.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._check_loop()
        await self._http.aclose()

    async def deploy(
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
        check_timeout(timeout)
        target = await asyncio.to_thread(
            resolve, what, name=name, replicas=replicas, balance=balance, shares=shares
        )  # may import the app
        deployed = await self._call(calls.deploy(target.name, target.spec), answers.view)
        if not wait:
            return deployed
        progress = Progress()
        view = deployed
        async for view in self.follow(deployed, timeout=timeout):
            for line in progress.take(view):
                on_progress(line)
        return serving(view)

    async def follow(self, deployed: AppView, *, timeout: float | None = None) -> AsyncGenerator[AppView, None]:
        async with aclosing(self.events(deployed.name, timeout=timeout)) as events:
            async for view in events:
                if concerns(view, deployed):
                    yield view
                    if view.settled:
                        return
        raise DeletedError(deployed.name)

    async def events(self, app: str, *, timeout: float | None = None) -> AsyncGenerator[AppView, None]:
        watch = Watch(app, timeout)
        while not watch.is_over:
            try:
                async with aclosing(self._events(watch.call())) as events:
                    async for event in events:
                        with understood(self.url):
                            view = watch.take(event)
                        if view is not None:
                            await self._until_loaded(view, watch.deadline)
                            watch.saw(view)
                            yield view
                        if watch.is_over:
                            return
            except ClientError as error:
                watch.broke(error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def apps(self) -> list[AppView]:
        return await self._call(calls.apps(), answers.views)

    async def app(self, name: str) -> AppView:
        return await self._call(calls.app(name), answers.view)

    async def scale(self, app: str, replicas: int) -> AppView:
        return await self._call(calls.scale(app, replicas), answers.view)

    async def delete(self, app: str) -> None:
        await self._call(calls.delete(app), answers.document)

    async def logs(self, app: str, lines: int = 100) -> list[ReplicaLog]:
        return await self._call(calls.logs(app, lines), answers.replica_logs)

    async def models(self) -> list[str]:
        return await self._call(calls.models(), answers.models)

    async def invoke(self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None) -> Any:
        return await self._call(calls.invoke(app, request, timeout), answers.document)

    def stream(
        self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None
    ) -> AsyncGenerator[Item | Result, None]:
        return self._stream(calls.invoke(app, request, timeout, stream=True), ResponsePieces())

    def chat(
        self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[str, None]:
        return self._stream(calls.chat(app, messages, options, timeout, stream=True), ChatPieces())

    async def complete(self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any) -> Any:
        return await self._call(calls.chat(app, messages, options, timeout, stream=False), answers.document)

    def _check_loop(self) -> None:
        """A connection is of one loop, and a call in another would break, or not, by whether one is idle."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise LoopError

    async def _until_loaded(self, view: AppView, deadline: Deadline) -> None:
        loading = Loading(view, deadline)
        while loading.matters and not loading.is_over(await self._call(calls.models(), answers.served)):
            await asyncio.sleep(PAUSE_SECONDS)

    async def _call(self, call: Call, read: Reader[T]) -> T:
        async def attempt() -> T:
            async with aclosing(await self._send(call)) as response:
                with translated(self.url, call.patience):
                    return answers.read(self.url, await response.aread(), read)

        return await self._persistently(call, attempt)

    async def _stream(self, call: Call, pieces: Pieces[T]) -> AsyncGenerator[T, None]:
        async with aclosing(self._events(call)) as events:
            async for event in events:
                for piece in answers.taken(self.url, pieces, event):
                    yield piece
                if pieces.is_complete:
                    return
        raise DisconnectedError(self.url)

    async def _events(self, call: Call) -> AsyncGenerator[Event, None]:
        deadline, parser = Deadline(call.patience if call.timeout else None), EventParser()
        response = await self._persistently(call, lambda: self._send(call))
        async with aclosing(response):
            with translated(self.url, call.patience):
                async for data in response.aiter_bytes():
                    if deadline.is_over:
                        raise SilentError(self.url, deadline.seconds)
                    for event in parser.take(data):
                        yield event

    async def _persistently(self, call: Call, attempt: Callable[[], Awaitable[T]]) -> T:
        for pause in retries.pauses(self._retries):
            try:
                return await attempt()
            except ClientError as error:
                if not retries.is_safe(call, error):
                    raise
            await asyncio.sleep(pause)
        return await attempt()

    async def _send(self, call: Call) -> httpx.Response:
        if self._http.is_closed:
            raise ClosedError
        self._check_loop()
        with translated(self.url, call.patience):
            request = self._http.build_request(
                call.method,
                self.url + call.path,
                content=call.body,
                headers=self._address.headers(call),
                timeout=call.timeouts,
            )
            response = await self._http.send(request, stream=True)
            if response.is_success:
                return response
            async with aclosing(response):
                raise refusal(response.status_code, await response.aread())

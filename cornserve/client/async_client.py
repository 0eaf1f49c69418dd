"""The asynchronous client. `Client` documents the methods, which are the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import httpx2 as httpx
from pydantic import BaseModel

from cornserve.app.app import App
from cornserve.app.event import AppEvent
from cornserve.app.graph import AppGraph
from cornserve.app.record import AppSpec, AppView, ReplicaLog, UnreadableApp
from cornserve.app.run_record import RunRecord
from cornserve.client import calls, responses, retries
from cornserve.client.address import GatewayAddress
from cornserve.client.app_watch import PAUSE_SECONDS, AppLoadWait, AppWatch, is_deployed_generation, require_serving
from cornserve.client.arguments import check_timeout, usable_environment
from cornserve.client.calls import ApiCall, Messages
from cornserve.client.cluster import open_cluster
from cornserve.client.deadline import Deadline
from cornserve.client.deploy_target import DeployOptions, DeployTarget, resolve_target
from cornserve.client.errors import (
    AppDeletedError,
    ClientClosedError,
    ClientError,
    DisconnectedError,
    EventLoopError,
    ResponseTimeoutError,
    response_error,
    translated_errors,
    unexpected_response,
)
from cornserve.client.progress import Progress
from cornserve.client.responses import (
    ChatDecoder,
    ChatDelta,
    EventDecoder,
    ImageDecoder,
    InvocationDecoder,
    ResponseParser,
    StreamItem,
    StreamResult,
    TextDecoder,
)
from cornserve.client.sse import ServerSentEvent, SseParser

T = TypeVar("T")


class AsyncClient:
    """A client of the gateway for one event loop, the loop of the first call. All tasks of the loop can share it.

    Close a stream that is not read to its end: `async with aclosing(client.chat(…)) as chunks:`.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, admin_token: str | None = None, *, retries: int = 2
    ) -> None:
        self._connect(GatewayAddress.resolve(url, api_key, admin_token), retries)

    @classmethod
    async def for_cluster(
        cls,
        context: str | None = None,
        namespace: str | None = None,
        api_key: str | None = None,
        admin_token: str | None = None,
        *,
        retries: int = 2,
    ) -> Self:
        client = cls.__new__(cls)
        client._connect(await asyncio.to_thread(open_cluster, context, namespace, api_key, admin_token), retries)
        return client

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
        await asyncio.to_thread(self._address.close)

    async def deploy(
        self,
        target: App | AppSpec | DeployTarget | Path | str,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: Callable[[str], object] = lambda line: None,
        **options: Unpack[DeployOptions],
    ) -> AppView:
        check_timeout(timeout)
        resolved = await asyncio.to_thread(resolve_target, target, **options)  # may import the app
        deployed = await self._call(calls.deploy(resolved.name, resolved.spec), responses.app_view)
        if not wait:
            return deployed
        progress = Progress()
        view = deployed
        async for view in self.follow(deployed, timeout=timeout, on_outage=on_progress):
            for line in progress.update(view):
                on_progress(line)
        return require_serving(view)

    async def follow(
        self,
        deployed: AppView,
        *,
        timeout: float | None = None,
        on_outage: Callable[[str], object] = lambda line: None,
    ) -> AsyncGenerator[AppView, None]:
        async with aclosing(self.events(deployed.name, timeout=timeout, on_outage=on_outage)) as events:
            async for view in events:
                if is_deployed_generation(view, deployed):
                    yield view
                    if view.settled:
                        return
        raise AppDeletedError(deployed.name)

    async def events(
        self, app: str, *, timeout: float | None = None, on_outage: Callable[[str], object] = lambda line: None
    ) -> AsyncGenerator[AppView, None]:
        watch = AppWatch(app, timeout, on_outage)
        while not watch.is_over:
            try:
                async with aclosing(self._events(watch.call())) as events:
                    async for event in events:
                        with unexpected_response(self._address.place):
                            view = watch.new_view(event)
                        if view is not None:
                            await self._until_loaded(view, watch.deadline)
                            watch.mark_seen(view)
                            yield view
                        if watch.is_over:
                            return
            except ClientError as error:
                watch.handle_error(error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def apps(self) -> list[AppView]:
        return await self._call(calls.apps(), responses.app_views)

    async def unreadable_apps(self) -> list[UnreadableApp]:
        return await self._call(calls.apps(), responses.unreadable_apps)

    async def app(self, name: str, *, memory: bool = False) -> AppView:
        return await self._call(calls.app(name, memory), responses.app_view)

    async def graph(self, app: str) -> AppGraph:
        return await self._call(calls.graph(app), AppGraph.model_validate)

    async def scale(
        self,
        app: str,
        replicas: int | None = None,
        *,
        executors: Mapping[str, int] | None = None,
        rate: float | None = None,
        gpus: int | None = None,
        hold_seconds: float | None = None,
    ) -> AppView:
        return await self._call(calls.scale(app, replicas, executors, rate, gpus, hold_seconds), responses.app_view)

    async def approve(self, app: str) -> AppView:
        return await self._call(calls.approve(app), responses.app_view)

    async def restart(self, app: str) -> AppView:
        return await self._call(calls.restart(app), responses.app_view)

    async def delete(self, app: str) -> None:
        await self._call(calls.delete(app), responses.json_document)

    async def logs(self, app: str, lines: int = 100) -> list[ReplicaLog]:
        return await self._call(calls.logs(app, lines), responses.replica_logs)

    async def history(self, app: str) -> list[AppEvent]:
        return await self._call(calls.history(app), responses.app_events)

    async def models(self) -> list[str]:
        return await self._call(calls.models(), responses.model_ids)

    async def invoke(self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None) -> Any:
        return await self._call(calls.invoke(app, request, timeout), responses.json_document)

    async def record(
        self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None
    ) -> RunRecord:
        return await self._call(calls.record(app, request, timeout), responses.run_record)

    def stream(
        self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None
    ) -> AsyncGenerator[StreamItem | StreamResult, None]:
        return self._stream(calls.invoke(app, request, timeout, stream=True), InvocationDecoder())

    def chat(
        self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[str, None]:
        return self._stream(calls.chat(app, messages, options, timeout, stream=True), TextDecoder())

    def chat_deltas(
        self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[ChatDelta, None]:
        return self._stream(calls.chat(app, messages, options, timeout, stream=True), ChatDecoder())

    async def complete(self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any) -> Any:
        return await self._call(calls.chat(app, messages, options, timeout, stream=False), responses.json_document)

    async def transcribe(
        self,
        app: str,
        audio: Path | bytes,
        *,
        translate: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Any:
        call = await asyncio.to_thread(calls.transcribe, app, audio, options, timeout, translate=translate)
        return await self._call(call, responses.json_document)

    async def generate_images(self, app: str, prompt: str, *, timeout: float | None = None, **options: Any) -> Any:
        call = calls.generate_images(app, prompt, options, timeout, stream=False)
        return await self._call(call, responses.json_document)

    def image_events(
        self, app: str, prompt: str, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        call = calls.generate_images(app, prompt, options, timeout, stream=True)
        return self._stream(call, ImageDecoder(options.get("n") or 1))

    async def edit_image(
        self, app: str, image: Path | bytes, prompt: str, *, timeout: float | None = None, **options: Any
    ) -> Any:
        call = await asyncio.to_thread(calls.edit_image, app, image, prompt, options, timeout, stream=False)
        return await self._call(call, responses.json_document)

    async def edit_events(
        self, app: str, image: Path | bytes, prompt: str, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        call = await asyncio.to_thread(calls.edit_image, app, image, prompt, options, timeout, stream=True)
        async for event in self._stream(call, ImageDecoder(options.get("n") or 1)):
            yield event

    def speak(
        self, app: str, text: str, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[bytes, None]:
        return self._bytes(calls.speak(app, text, options, timeout))

    def _connect(self, address: GatewayAddress, retries: int) -> None:
        self._address = address
        self._retries = retries
        self._loop: asyncio.AbstractEventLoop | None = None
        with usable_environment():
            self._http = httpx.AsyncClient(verify=address.tls, trust_env=not address.is_loopback, limits=calls.LIMITS)

    def _check_loop(self) -> None:
        """Raises `EventLoopError` in another loop, where a call would fail if it found an idle connection."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise EventLoopError

    async def _until_loaded(self, view: AppView, deadline: Deadline) -> None:
        wait = AppLoadWait(view, deadline)
        while wait.is_needed and not wait.is_over(await self._call(calls.models(), responses.loaded_models)):
            await asyncio.sleep(PAUSE_SECONDS)

    async def _call(self, call: ApiCall, parse: ResponseParser[T]) -> T:
        async def attempt() -> T:
            async with aclosing(await self._send(call)) as response:
                with translated_errors(self._address.place, call.read_timeout):
                    return responses.parse_response(self._address.place, await response.aread(), parse)

        return await self._with_retries(call, attempt)

    async def _stream(self, call: ApiCall, decoder: EventDecoder[T]) -> AsyncGenerator[T, None]:
        async with aclosing(self._events(call)) as events:
            async for event in events:
                for value in responses.decode_event(self._address.place, decoder, event):
                    yield value
                if decoder.is_complete:
                    return
        raise DisconnectedError(self._address.place)

    async def _events(self, call: ApiCall) -> AsyncGenerator[ServerSentEvent, None]:
        parser = SseParser()
        async with aclosing(self._bytes(call)) as parts:
            async for data in parts:
                for event in parser.feed(data):
                    yield event

    async def _bytes(self, call: ApiCall) -> AsyncGenerator[bytes, None]:
        deadline = Deadline(call.read_timeout if call.timeout else None)
        response = await self._with_retries(call, lambda: self._send(call))
        async with aclosing(response):
            with translated_errors(self._address.place, call.read_timeout):
                async for data in response.aiter_bytes():
                    if deadline.is_over:
                        raise ResponseTimeoutError(self._address.place, deadline.seconds)
                    yield data

    async def _with_retries(self, call: ApiCall, attempt: Callable[[], Awaitable[T]]) -> T:
        for pause in retries.pauses(self._retries):
            try:
                return await attempt()
            except ClientError as error:
                if not retries.is_safe(call, error):
                    raise
            await asyncio.sleep(pause)
        return await attempt()

    async def _send(self, call: ApiCall) -> httpx.Response:
        if self._http.is_closed:
            raise ClientClosedError
        self._check_loop()
        with translated_errors(self._address.place, call.read_timeout):
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
                raise response_error(response.status_code, await response.aread())

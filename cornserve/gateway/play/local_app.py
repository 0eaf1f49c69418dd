"""Plays tasks of `cornserve_tasklib` in the gateway's process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from pydantic import TypeAdapter

from cornserve.app.app import App
from cornserve.app.image_slots import ImageSlot, find_image_slots
from cornserve.app.operations import supported_operations
from cornserve.app.response_readers import ResponseReader
from cornserve.app.unused_fields import invoke_rejecting_unused
from cornserve.blocking_apps import CurrentApp
from cornserve.gateway.play.player import PlaySettings
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.task.base import Task
from cornserve.task.errors import Suspension
from cornserve.task.recording import Recording

Result = TypeVar("Result")


class LocalApp:
    """An app that plays in the gateway's process. Creating one is slow.

    Args:
        current: records when the app plays.
    """

    def __init__(self, app: App, current: CurrentApp) -> None:
        self.app = app
        self.current = current
        self.entry = current.encode(app.name)
        self.operations = supported_operations(app)
        self.response: TypeAdapter[Any] = TypeAdapter(app.response_type)
        self._request: TypeAdapter[Any] = TypeAdapter(app.request_type)

    async def parse(self, body: bytes | bytearray) -> tuple[Any, list[ImageSlot]]:
        request = self._request.validate_json(body)
        return request, find_image_slots(request)

    def start(self, settings: PlaySettings) -> LocalPlayer:
        return LocalPlayer(self, settings)

    def close(self) -> None:
        """Does nothing: the code belongs to this process."""


class LocalPlayer:
    def __init__(self, local_app: LocalApp, settings: PlaySettings) -> None:
        path: Task[Any, Any] = local_app.app.paths[settings.path]
        self.task_name = path.name
        self._path = path
        self._local_app = local_app
        self._record_seconds = settings.record_seconds
        open_stream = settings.open_stream
        self._recording = Recording(
            settings.random,
            open_stream=lambda origin: open_stream(origin).batches(),
            max_invocations=local_app.app.max_invocations,
        )

    @property
    def invocations(self) -> Sequence[RequestInvocation]:
        return self._recording.invocations

    async def play(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result] | Suspension:
        started = perf_counter()
        self._local_app.current.begin(self._local_app.entry)
        try:
            return self._recording.play(self.task_name, partial(self._run, requests, reader))
        finally:
            self._local_app.current.end()
            self._record_seconds(perf_counter() - started)

    def _run(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result]:
        responses = [invoke_rejecting_unused(self._path, request) for request in requests]
        return [reader.read(response, self._local_app.response) for response in responses]

    def close(self) -> None:
        self._recording.close()
        del self._recording  # breaks the reference cycle through `open_stream`

"""Runs tasks of `cornserve_tasklib` in the gateway's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json

from cornserve.app.app import App
from cornserve.app.media_slots import MediaSlot, find_media_slots
from cornserve.app.needed_components import needed_components
from cornserve.app.operations import supported_operations
from cornserve.app.response_readers import ResponseReader
from cornserve.app.unused_fields import invoke_rejecting_unused
from cornserve.blocking_apps import CurrentApp
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.task_runs.task_runner import RunSettings
from cornserve.task import Stream
from cornserve.task.base import Task
from cornserve.task.errors import SideEffectSuspension, Suspension
from cornserve.task.recording import Recording

Result = TypeVar("Result")
Value = TypeVar("Value")


class LocalApp:
    """An app that runs in the gateway's process. Creating one is slow.

    Args:
        current: records when the app runs.
    """

    def __init__(self, app: App, current: CurrentApp) -> None:
        self.app = app
        self.current = current
        self.entry = current.encode(app.name)
        self.operations = supported_operations(app.request_types, app.response_type)
        self.response: TypeAdapter[Any] = TypeAdapter(app.response_type)
        self._request: TypeAdapter[Any] = TypeAdapter(app.request_type)

    async def parse(self, body: bytes | bytearray) -> tuple[Any, list[MediaSlot]]:
        request = self._request.validate_json(body)
        return request, find_media_slots(request)

    def start(self, settings: RunSettings) -> LocalRunner:
        return LocalRunner(self, settings)

    def close(self) -> None:
        """Does nothing: the code belongs to this process."""


class LocalRunner:
    def __init__(self, local_app: LocalApp, settings: RunSettings) -> None:
        self._local_app = local_app
        self._settings = settings
        self._first_random_index = settings.random.index
        self.select_path(0)
        open_stream = settings.open_stream
        self._recording = Recording(
            settings.random,
            open_stream=lambda origin: open_stream(origin).batches(),
            max_invocations=local_app.app.max_invocations,
            resumes=True,
        )
        self._responses: list[Any] | None = None
        """The responses of the task, once it has ended. Each reader reads them."""

    @property
    def invocations(self) -> Sequence[RequestInvocation]:
        return self._recording.invocations

    @property
    def yielded(self) -> Sequence[Stream[Any]]:
        return ()  # No task of the library yields.

    def outputs(self) -> list[dict[str, Any]]:
        return [
            from_json(invocation.output.values_json()) if invocation.ended and invocation.error is None else {}
            for invocation in self._recording.invocations
        ]

    def select_path(self, path: int) -> None:
        self._path: Task[Any, Any] = self._local_app.app.paths[path]
        self.task_name = self._path.name

    async def needed_components(self, requests: Sequence[Any]) -> frozenset[str]:
        app, key, index = self._local_app.app, self._settings.random_key, self._first_random_index
        return self._timed(
            lambda: frozenset().union(*(needed_components(app, request, key, index) for request in requests))
        )

    async def run(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result] | Suspension:
        code, continues = partial(self._run, requests, reader), self._responses is not None
        return self._timed(lambda: self._recording.run(self.task_name, code, continues=continues))

    async def run_side_effect(self, suspension: SideEffectSuspension) -> None:
        raise AssertionError(f"no task of the library has side effects, such as {suspension.call.function}")

    def _timed(self, code: Callable[[], Value]) -> Value:
        """Counts the time for which the task's code runs."""
        started = perf_counter()
        self._local_app.current.begin(self._local_app.entry)
        try:
            return code()
        finally:
            self._local_app.current.end()
            self._settings.record_seconds(perf_counter() - started)

    def _run(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result]:
        if self._responses is None:
            self._responses = [invoke_rejecting_unused(self._path, request) for request in requests]
        return [reader.read(response, self._local_app.response) for response in self._responses]

    def close(self) -> None:
        self._recording.close()
        del self._recording, self._responses  # breaks the reference cycles through `open_stream`

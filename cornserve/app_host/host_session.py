"""One request in an app host: runs its task, and keeps the streams that the task maps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cornserve.app.app import App
from cornserve.app.media_slots import find_media_slots
from cornserve.app.needed_components import needed_components
from cornserve.app.operations import REQUEST_TYPES
from cornserve.app.response_readers import READERS, ResponseReader
from cornserve.app.unused_fields import invoke_rejecting_unused, tracked
from cornserve.app_host.invocation_failure import invocation_error
from cornserve.app_host.side_effect_calls import describe_call, described_call
from cornserve.app_host.yields import Mapped, Yields, describe_stream
from cornserve.exception_text import exception_message
from cornserve.task import Blob, Stream, UnitTask
from cornserve.task.base import Task
from cornserve.task.errors import DivergenceError, OutputSuspension, SideEffectSuspension, Suspension
from cornserve.task.recording import Invocation, Recording
from cornserve.task.references import Origin, ReferenceDecoder
from cornserve.task.side_effects import SideEffect, SideEffectResult
from cornserve.v1 import app_host_pb2 as pb
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.media import Media

_MEDIA: TypeAdapter[Media] = TypeAdapter(Media)

OpenSource = Callable[[Invocation, str], AsyncIterator[Sequence[Any]]]
"""Returns the items of a stream output of an invocation."""


class NativeRequestError(Exception):
    """The body of a native call does not have the app's request type."""

    def __init__(self, cause: ValidationError) -> None:
        super().__init__("the body of a native call is not valid")
        self.cause = cause


class LoadedApp:
    """The app of a host, with the adapters of its types."""

    def __init__(self, app: App, module: str) -> None:
        self.app = app
        self.module = module
        self.response: TypeAdapter[Any] = TypeAdapter(app.response_type)
        self._request: TypeAdapter[Any] = TypeAdapter(app.request_type)

    def parse_native(self, body: bytes) -> Any:
        """Returns the request of a native call. Raises `NativeRequestError`."""
        try:
            return self._request.validate_json(body)
        except ValidationError as error:
            raise NativeRequestError(error) from error


class HostSession:
    def __init__(self, loaded: LoadedApp, begin: pb.BeginSession, open_source: OpenSource) -> None:
        self.mapped: Mapped = []
        """The mapped streams of the last results that contained streams, or of all that the task has yielded."""
        self._loaded = loaded
        self._blobs = [Blob(data) for data in begin.blobs]
        self._blob_indices = {id(blob.data): index for index, blob in enumerate(self._blobs)}
        self._early_updates: dict[int, list[pb.Update]] = {}
        """The updates of invocations that are not recorded yet: another host has recorded them."""
        self._sent = 0
        self._task = ""
        """The name of the task of the last run."""
        self._yields: Yields | None = None
        self._begin = begin.random_key, begin.random_index
        self._recording: Recording = Recording(
            ReplayableRandom(*self._begin),
            open_stream=lambda origin: open_source(self._recording.invocations[origin.invocation], origin.output),
            on_record=self._apply_early_updates,
            max_invocations=loaded.app.max_invocations,
            resumes=True,
        )
        self._requests = self._parse(begin)

    def needed_components(self) -> frozenset[str]:
        """Returns the components that the requests need on the first path. Raises the errors of its task."""
        app = self._loaded.app
        return frozenset().union(*(needed_components(app, request, *self._begin) for request in self._requests))

    def run(self, command: pb.RunTask) -> pb.RunOutcome:
        """Runs the task from its start, or from where the last run has ended. Raises its errors."""
        for update in command.updates:
            self._update(update)
        for result in command.side_effects:
            call = described_call(result.call)
            self._recording.side_effects.append(SideEffectResult(call, result.value, result.error))
        reader = READERS[command.reader]
        path = self._loaded.app.paths[command.path]
        self._task = path.name
        yields = self._find_yields(reader)
        outcome = self._recording.run(
            path.name, lambda: self._run(path, reader), None if yields is None else yields.add
        )
        run_outcome = pb.RunOutcome()
        if isinstance(outcome, OutputSuspension):
            run_outcome.awaited.invocation = outcome.invocation
            run_outcome.awaited.field = outcome.field or ""
        elif isinstance(outcome, SideEffectSuspension):
            run_outcome.awaited_side_effect.CopyFrom(describe_call(outcome.call))
        elif yields is not None and yields.has_any:
            run_outcome.results.SetInParent()
        elif not isinstance(outcome, Suspension):
            self._add_results(run_outcome.results, outcome, reader)
        if yields is not None:
            run_outcome.yielded.extend(yields.take_new())
        run_outcome.invocations.extend(map(self._describe, self._recording.invocations[self._sent :]))
        self._sent = len(self._recording.invocations)
        return run_outcome

    @property
    def next_side_effect(self) -> SideEffect:
        """The call for which the last run waits."""
        effect = self._recording.next_side_effect
        assert effect is not None  # The gateway runs a call that a run has reported.
        return effect

    def mapped_stream(self, index: int) -> AsyncIterator[Sequence[Any]]:
        """Returns a mapped stream. Raises `DivergenceError` if only the code in an earlier host has mapped it."""
        if index >= len(self.mapped):
            raise DivergenceError(self._task, None, "it mapped a stream in the recording that it does not map now")
        return self.mapped[index]

    def close(self) -> None:
        self._recording.release_outputs()
        self._recording.close()

    def _find_yields(self, reader: ResponseReader[Any]) -> Yields | None:
        """Returns the recorder of yielded values, or None if the reader ignores them.

        The tasks of several requests run one after another, so their yields would not be early.
        """
        if reader.yields is None or len(self._requests) != 1:
            return None
        if self._yields is None:
            self._yields = Yields(reader.yields, self.mapped)
        return self._yields

    def _run(self, path: Task[Any, Any], reader: ResponseReader[Any]) -> list[Any]:
        responses = [invoke_rejecting_unused(path, request) for request in self._requests]
        return [reader.read(response, self._loaded.response) for response in responses]

    def _parse(self, begin: pb.BeginSession) -> list[Any]:
        decoder = ReferenceDecoder(self._blobs)
        if begin.request_type == "native":
            (body,) = begin.requests
            request = self._loaded.parse_native(body)
            for slot, media in zip(find_media_slots(request), begin.media, strict=True):
                slot.set_media(_MEDIA.validate_json(media, context=decoder))
            return [request]
        request_type = REQUEST_TYPES[begin.request_type]  # type: ignore[index]  # gateways send known types
        requests = [request_type.model_validate_json(body, context=decoder) for body in begin.requests]
        return [tracked(request_type, request, begin.optional_fields) for request in requests]

    def _update(self, update: pb.Update) -> None:
        if update.invocation < len(self._recording.invocations):
            _apply(self._recording.invocations[update.invocation], update)
        else:
            self._early_updates.setdefault(update.invocation, []).append(update)

    def _apply_early_updates(self, invocation: Invocation) -> None:
        for update in self._early_updates.pop(invocation.index, ()):
            _apply(invocation, update)

    def _add_results(self, results: pb.Results, values: Sequence[Any], reader: ResponseReader[Any]) -> None:
        mapped: Mapped = []
        for value in values:
            result = results.results.add()
            streams = {"": value} if isinstance(value, Stream) else value
            if isinstance(streams, dict):
                result.has_streams = True
                for name, stream in streams.items():
                    describe_stream(result.streams.add(name=name), stream, mapped)
            else:
                result.json = reader.dump(value)
        if any(result.has_streams for result in results.results):
            self.mapped = mapped

    def _describe(self, invocation: Invocation) -> pb.RecordedInvocation:
        task, size = invocation.task, invocation.size
        usage = task.output_type.model_fields.get("usage")
        described = pb.RecordedInvocation(
            task=task.name,
            key=task.key,
            line=invocation.line,
            request=invocation.request,
            size=pb.RecordedSize(text=size.text, media=size.media, output=size.output, items=size.items),
            tensors=sorted(task.layout.tensors),
            tensor_streams=sorted(task.layout.tensor_streams),
            has_values=bool(task.layout.values),
            streams=list(task.layout.streams),
            reports_usage=usage is not None and usage.annotation is Usage,
            continues=type(task).continues is not UnitTask.continues and invocation.is_continuable,
        )
        for value in invocation.inputs:
            recorded = described.inputs.add()
            if isinstance(value, Origin):
                recorded.origin.invocation, recorded.origin.output = value
            elif id(value.data) in self._blob_indices:
                recorded.blob = self._blob_indices[id(value.data)]
            else:
                recorded.data = value.data
        return described


def _apply(invocation: Invocation, update: pb.Update) -> None:
    try:
        match update.WhichOneof("kind"):
            case "value":
                invocation.set_value(update.value.field, update.value.json)
            case "values":
                invocation.finish(update.values)
            case _:
                invocation.fail_with(invocation_error(update.failure))
    except (KeyError, ValueError) as error:
        invocation.fail("INTERNAL", f"the executor sent an invalid output: {exception_message(error)}")

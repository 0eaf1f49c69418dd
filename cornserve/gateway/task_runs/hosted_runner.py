"""Runs the task of one request in an app host. When the host is lost, another one repeats the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from cornserve.app.response_readers import ResponseReader
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.errors import AppHostLostError
from cornserve.app_host.invocation_failure import describe_failure
from cornserve.app_host.side_effect_calls import describe_call, described_call
from cornserve.gateway.errors import ApiError, AppCodeError
from cornserve.gateway.observe.app_logs import FailedCall, PrintedLine
from cornserve.gateway.task_runs.host_provider import HostProvider
from cornserve.gateway.task_runs.hosted_errors import exception_of
from cornserve.gateway.task_runs.hosted_invocation import HostedInvocation
from cornserve.gateway.task_runs.hosted_request import BeginCommand
from cornserve.gateway.task_runs.task_runner import RunSettings
from cornserve.task import Blob, Stream, TaskError
from cornserve.task.errors import DivergenceError, OutputSuspension, SideEffectSuspension, Suspension
from cornserve.task.references import Origin
from cornserve.task.side_effect_call import SideEffectCall
from cornserve.v1 import app_host_pb2 as pb
from cornserve.validation_errors import describe_all

Result = TypeVar("Result")

MAX_LOST_HOSTS: Final = 3
"""A request that has lost this number of hosts fails, although its code did not cause the losses."""

MAX_SOURCE_READS: Final = 1024
"""The number of reads of a request that may wait for items at a time. A host reads each mapped stream once."""

LATE_SECONDS: Final = 0.2
"""The delay of the timeout after the deadline, at which the invocations fail with better messages."""


class HostedRunner:
    """Runs the task of one request.

    Args:
        number: identifies the request in the hosts of the app.
    """

    def __init__(self, app: HostProvider, number: int, settings: RunSettings) -> None:
        self.invocations: list[HostedInvocation] = []
        self.number = number
        self._app = app
        self._settings = settings
        self._random_index = settings.random.index
        self._begin: BeginCommand | None = None
        self._host: AppHost | None = None
        self._is_begun = False
        """Whether the host has received the request."""
        self._lost_hosts = 0
        self._was_killed = False
        """Whether a host was killed while it ran the code of this request."""
        self._updates: list[pb.Update] = []
        """All parts of outputs that have arrived, in this order."""
        self._sent_updates = 0
        """The number of updates that the host has received."""
        self._recorded = 0
        """The number of invocations that the host has recorded."""
        self.yielded: list[Stream[Any]] = []
        self._host_yielded = 0
        """The number of values that the current run of the code has yielded."""
        self._printed = 0
        """The number of lines that have been logged."""
        self._host_printed = 0
        """The number of lines that the current run of the code has printed."""
        self._is_suspended = False
        """Whether the code in the host waits for a value. Otherwise, the next run begins at its start."""
        self._side_effects: list[pb.SideEffectResult] = []
        """The results of all calls with side effects that have run."""
        self._sent_side_effects = 0
        """The number of results that the host has received."""
        self._streams_host: AppHost | None = None
        """The host that has the mapped streams of the last results that contained streams."""
        self._restoring = asyncio.Lock()
        self._source_reads: set[asyncio.Task[None]] = set()
        self._source_error: TaskError | None = None
        """The error of the read of a stream that does not exist."""
        self.select_path(0)

    def select_path(self, path: int) -> None:
        self._path = path
        self.task_name = self._app.description.paths[path]

    async def needed_components(self, requests: Sequence[Any]) -> frozenset[str]:
        self._begin = BeginCommand(self._settings, self._random_index, requests)
        while True:
            host = await self._connect()
            classify = pb.Classify(session=self.number, begin=self._begin.message)
            self._is_begun = True
            try:
                contents = self._begin.encode_contents("classify")
                reply = await self._call(host, pb.HostCommand(classify=classify), contents)
            except AppHostLostError as error:
                self._on_lost(host, error)
            else:
                return frozenset(reply.classified.components)

    async def run(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result] | Suspension:
        if self._begin is None:
            self._begin = BeginCommand(self._settings, self._random_index, requests)
        run_outcome = await self._run_task(reader)
        match run_outcome.WhichOneof("outcome"):
            case "awaited":
                return OutputSuspension(run_outcome.awaited.invocation, run_outcome.awaited.field or None)
            case "awaited_side_effect":
                return SideEffectSuspension(described_call(run_outcome.awaited_side_effect))
        results: list[Any] = [self._load(result, reader) for result in run_outcome.results.results]
        return results

    async def run_side_effect(self, suspension: SideEffectSuspension) -> None:
        """Runs the call once: if its process ends meanwhile, the request fails, because the effect is unknown."""
        host = self._host
        if host is None or host.lost is not None:
            return  # The next run is in another host, and waits for the call again.
        try:
            async with self._until_deadline():
                reply = await host.run_side_effect(self.number)
        except AppHostLostError as error:
            reason = f"{error.reason} while {suspension.call.function} ran, which is not repeated"
            raise AppCodeError(reason, self._app.name, self.task_name) from None
        self._log_lines(reply.printed)
        if reply.HasField("error"):
            raise exception_of(reply.error, self._app.name, self.task_name)
        self._add_side_effect(suspension.call, reply.side_effect)

    def _add_side_effect(self, call: SideEffectCall, result: pb.SideEffectResult) -> None:
        """Keeps the result for the next runs, and logs an error."""
        if result.error:
            self._settings.log.add_failed_call(FailedCall(call.function, self.task_name, call.line, result.traceback))
        kept = pb.SideEffectResult(call=describe_call(call), value=result.value, error=result.error)
        self._side_effects.append(kept)

    def outputs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{} for _ in self.invocations]
        for update in self._updates:
            match update.WhichOneof("kind"):
                case "value":
                    found[update.invocation][update.value.field] = from_json(update.value.json)
                case "values" if update.values:
                    found[update.invocation] |= from_json(update.values)
        return found

    def close(self) -> None:
        self._app.end_session(self.number, self._host)
        self._cancel_source_reads()
        self.invocations = []  # breaks the reference cycle through `_updates.append`

    def send_source_items(self, host: AppHost, reply: pb.HostReply) -> None:
        """Sends the next items of a stream as soon as there are any, for a function of the app that maps it."""
        if len(self._source_reads) >= MAX_SOURCE_READS:  # The code of the app writes to the connection.
            message = f"it reads more than {MAX_SOURCE_READS} streams at once"
            self._source_error = AppCodeError(message, self._app.name, self.task_name)
            self._app.replace(host, pb.HostError(type="RuntimeError", message=message))
            return
        read = asyncio.create_task(self._send_source_items(host, reply))
        self._source_reads.add(read)
        read.add_done_callback(self._source_reads.discard)

    def _cancel_source_reads(self) -> None:
        for read in self._source_reads:
            read.cancel()
        self._source_reads.clear()

    async def _send_source_items(self, host: AppHost, reply: pb.HostReply) -> None:
        items = await self._read_source(reply.source_read)
        host.send(pb.HostCommand(call=reply.call, source_items=items))

    async def _read_source(self, read: pb.SourceRead) -> pb.SourceItems:
        origin = Origin(read.origin.invocation, read.origin.output)
        try:
            buffer = self._settings.open_stream(origin)
        except TaskError as error:
            self._source_error = error.with_traceback(None)
            failure = pb.InvocationFailure(invocation=origin.invocation, code="INTERNAL", message=str(error))
            return pb.SourceItems(failure=failure)
        items = await buffer.next_batch(read.position)
        response = pb.SourceItems(items=items, ended=not items)
        if response.ended and buffer.error is not None:
            response.failure.CopyFrom(describe_failure(buffer.error))
        return response

    async def _run_task(self, reader: ResponseReader[Any]) -> pb.RunOutcome:
        while True:
            host = await self._connect()
            try:
                contents = [] if self._is_begun or self._begin is None else self._begin.encode_contents("run")
                reply = await self._call(host, pb.HostCommand(run=self._run_command(reader)), contents)
            except AppHostLostError as error:
                self._on_lost(host, error)
            else:
                return self._add_outcome(host, reply.run_outcome, reader)

    def _add_outcome(self, host: AppHost, run_outcome: pb.RunOutcome, reader: ResponseReader[Any]) -> pb.RunOutcome:
        self._is_suspended = run_outcome.WhichOneof("outcome") in ("awaited", "awaited_side_effect")
        self._add_invocations(run_outcome.invocations)
        self._add_yielded(run_outcome.yielded, reader)
        if run_outcome.yielded or any(result.has_streams for result in run_outcome.results.results):
            self._streams_host = host
        return run_outcome

    async def _connect(self) -> AppHost:
        """Returns the host of the app. Another host than before starts with an empty recording."""
        async with self._until_deadline():
            host = await self._app.host()
        if host is not self._host:
            self._cancel_source_reads()
            self._host, self._is_begun = host, False
            self._sent_updates = self._sent_side_effects = self._recorded = 0
            self._is_suspended = False
        return host

    def _run_command(self, reader: ResponseReader[Any]) -> pb.RunTask:
        assert self._begin is not None
        if not self._is_suspended:
            self._host_printed = self._host_yielded = 0
        updates = self._updates[self._sent_updates :]
        run = pb.RunTask(session=self.number, reader=reader.name, updates=updates, path=self._path)
        run.side_effects.extend(self._side_effects[self._sent_side_effects :])
        if not self._is_begun:
            run.begin.CopyFrom(self._begin.message)
        self._is_begun, self._sent_updates = True, len(self._updates)
        self._sent_side_effects = len(self._side_effects)
        return run

    async def _call(self, host: AppHost, command: pb.HostCommand, rest: Sequence[bytes] = ()) -> pb.HostReply:
        """Returns the reply. Raises the error of the app's code, or `AppHostLostError`."""
        async with self._until_deadline():
            reply = await host.call(command, rest)
        self._settings.record_seconds(reply.seconds)
        if not reply.HasField("mapped_items"):
            self._log_prints(reply)
        if self._source_error is not None:
            raise self._take_source_error()  # a local variable would form a reference cycle with its traceback
        if reply.HasField("error"):
            if reply.error.is_exhausted:
                self._app.replace(host, reply.error)
            raise exception_of(reply.error, self._app.name, self.task_name)
        return reply

    def _log_prints(self, reply: pb.HostReply) -> None:
        """Logs the lines that a run has printed, except for those that an earlier run has printed, too."""
        lines = reply.printed[max(0, self._printed - self._host_printed) :]
        self._host_printed += len(reply.printed)
        if lines:
            self._printed = self._host_printed
            self._log_lines(lines)

    def _log_lines(self, lines: Sequence[pb.PrintedLine]) -> None:
        self._settings.log.add_prints([PrintedLine(line.text, line.line) for line in lines])

    @asynccontextmanager
    async def _until_deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(self._settings.deadline + LATE_SECONDS):
                yield
        except TimeoutError:
            place = f"app {self._app.name!r}, task {self.task_name}"
            message = f"the app's code has not been run by the request's deadline ({place})"
            raise ApiError(504, message, code="deadline_exceeded") from None

    def _take_source_error(self) -> TaskError:
        assert self._source_error is not None
        error, self._source_error = self._source_error, None
        return error

    def _on_lost(self, host: AppHost, error: AppHostLostError) -> None:
        """Raises an error if this request has caused the loss, or has lost too many hosts.

        A host that is killed while it runs the code of the request may have been killed from outside, once.
        """
        if host is not self._host:
            return  # Another stream of this request has counted the loss.
        if self._source_error is not None:
            raise self._take_source_error()
        if error.culprit_session == self.number:
            self._settings.record_seconds(error.seconds)
            if self._was_killed or not error.is_kill:
                raise AppCodeError(error.reason, self._app.name, self.task_name, error.location)
            self._was_killed = True
        self._lost_hosts += 1
        if self._lost_hosts >= MAX_LOST_HOSTS:
            reason = f"the app's process has ended {self._lost_hosts} times during the request: {error.reason}"
            raise AppCodeError(reason, self._app.name, self.task_name)
        self._host = None

    def _add_invocations(self, recorded: Sequence[pb.RecordedInvocation]) -> None:
        """Adds the new invocations. Raises `DivergenceError` if the host has not repeated those of an earlier host."""
        for invocation in recorded:
            inputs = [self._input(given) for given in invocation.inputs]
            index = self._recorded
            if index == len(self.invocations):
                self.invocations.append(HostedInvocation(index, invocation, inputs, self._updates.append))
            elif difference := self.invocations[index].difference(invocation, inputs):
                raise DivergenceError(invocation.task, index, difference)
            self._recorded += 1

    def _add_yielded(self, yielded: Sequence[pb.Yielded], reader: ResponseReader[Any]) -> None:
        """Adds the values that a run has yielded, except for those that an earlier run has yielded, too."""
        for value in yielded:
            if self._host_yielded == len(self.yielded):
                self.yielded.append(self._yielded_stream(value, reader))
            self._host_yielded += 1

    def _yielded_stream(self, value: pb.Yielded, reader: ResponseReader[Any]) -> Stream[Any]:
        if value.HasField("stream"):
            return self._stream(value.stream, reader)
        items = [self._checked(reader.load_item, item) for item in value.items]
        return Stream(source=lambda: _single_batch(items))

    def _input(self, given: pb.RecordedInput) -> Origin | Blob:
        assert self._begin is not None
        match given.WhichOneof("source"):
            case "origin":
                return Origin(given.origin.invocation, given.origin.output)
            case "blob":
                return Blob(self._begin.blobs[given.blob])
            case _:
                return Blob(given.data)

    def _load(self, result: pb.Result, reader: ResponseReader[Any]) -> Any:
        if not result.has_streams:
            return self._checked(reader.load, result.json)
        streams = {stream.name: self._stream(stream, reader) for stream in result.streams}
        return streams.get("", streams)

    def _stream(self, stream: pb.ResultStream, reader: ResponseReader[Any]) -> Stream[Any]:
        if stream.HasField("origin"):
            origin = Origin(stream.origin.invocation, stream.origin.output)
            return Stream(origin, lambda: self._batches(origin, reader))
        return Stream(source=lambda: self._mapped_batches(stream.mapped, reader))

    async def _batches(self, origin: Origin, reader: ResponseReader[Any]) -> AsyncIterator[Sequence[Any]]:
        async for items in self._settings.open_stream(origin).batches():
            yield [self._checked(reader.load_item, item) for item in items]

    async def _mapped_batches(self, mapped: int, reader: ResponseReader[Any]) -> AsyncIterator[Sequence[Any]]:
        command = pb.HostCommand(read_mapped=pb.ReadMapped(session=self.number, mapped=mapped))
        host: AppHost | None = None
        received = delivered = 0
        while True:
            previous, host = host, await self._host_with_streams(reader)
            if host is not previous:
                received = 0  # The function maps the stream again from its first item.
            try:
                reply = await self._call(host, command)
            except AppHostLostError as error:
                self._on_lost(host, error)
                continue
            mapped_items = reply.mapped_items
            if mapped_items.ended:
                return
            new = mapped_items.items[max(0, delivered - received) :]
            received += len(mapped_items.items)
            delivered += len(new)
            if new or not mapped_items.items:  # An earlier host has printed the lines of other items.
                self._log_lines(reply.printed)
            if new:
                yield [self._checked(reader.load_item, item) for item in new]

    def _checked(self, load: Callable[[bytes], Result], json: bytes) -> Result:
        """Returns the value. Raises the app's error if its code has returned a value of another type."""
        try:
            return load(json)
        except ValidationError as error:
            reason = f"the app's code returned an invalid value: {describe_all(error.errors())}"
            raise AppCodeError(reason, self._app.name, self.task_name) from None

    async def _host_with_streams(self, reader: ResponseReader[Any]) -> AppHost:
        """Returns a host that has the mapped streams. Another host than before repeats the run for it."""
        async with self._restoring:
            while True:
                host = await self._connect()
                if host is self._streams_host:
                    return host
                await self._run_task(reader)


async def _single_batch(items: Sequence[Any]) -> AsyncIterator[Sequence[Any]]:
    yield items

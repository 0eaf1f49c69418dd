"""The requests that an app host runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from cornserve.app.app import App
from cornserve.app.media_slots import find_media_slots
from cornserve.app.response_readers import encode_item
from cornserve.app.source import source_path
from cornserve.app.spec import AppSpec
from cornserve.app_host.activity import Activity
from cornserve.app_host.host_error import describe_error, describe_invalid_request
from cornserve.app_host.host_session import HostSession, LoadedApp, NativeRequestError
from cornserve.app_host.prints import PrintCapture
from cornserve.app_host.protocol import MAX_REPLY_BYTES
from cornserve.app_host.repetition import REPEATED_REQUESTS, Repetition
from cornserve.app_host.side_effects import SideEffectRunner
from cornserve.app_host.stream_sources import StreamSources
from cornserve.task.errors import AbortedError
from cornserve.task.recording import Invocation
from cornserve.task.side_effects import SideEffect
from cornserve.tracebacks import clear_traceback
from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.codec import MessageSizeError
from cornserve.wire.connection import MessageConnection

Connection = MessageConnection[pb.HostReply, pb.HostCommand]


class HostSessions:
    """Handles the commands that concern requests.

    Args:
        spec: the spec of the app.
        module: the name of the app's module.
        activity: records when code of the app runs.
    """

    def __init__(self, app: App, spec: AppSpec, module: str, connection: Connection, activity: Activity) -> None:
        self._app = LoadedApp(app, module)
        self._connection = connection
        self._activity = activity
        self._prints = PrintCapture(source_path(module, spec.source_filename))
        self._prints.install()
        self._logs_messages = spec.source is not None and spec.source.log_messages
        self._side_effects = SideEffectRunner(self._prints, source_path(module, filename=""), self._logs_messages)
        self._sources = StreamSources(connection, self._begin_mapping)
        self._sessions: dict[int, HostSession] = {}
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}
        """The reads of mapped streams and the calls with side effects that have not ended, by session."""
        self._begun = 0
        """The number of requests that have begun, counted up to `REPEATED_REQUESTS`."""
        self._repetitions: dict[int, Repetition] = {}
        """The second runs of the first requests, by session."""

    def handle(self, command: pb.HostCommand) -> None:
        match command.WhichOneof("kind"):
            case "run":
                session = command.run.session
                with self._running(command.call, session) as reply:
                    with self._prints.collected(reply):
                        reply.run_outcome.CopyFrom(self._run_task(session, command.run))
                    self._repeat(session, command.run, reply.run_outcome)
            case "classify":
                session = command.classify.session
                with self._running(command.call, session) as reply:
                    components = self._begin(session, command.classify.begin).needed_components()
                    reply.classified.components.extend(sorted(components))
                    reply.classified.SetInParent()
            case "find_media":
                with self._running(command.call, 0) as reply:
                    for slot in find_media_slots(self._app.parse_native(command.find_media.body)):
                        reply.media_parts.parts.add(path=slot.path, part=slot.sent.model_dump_json().encode())
                    reply.media_parts.SetInParent()
            case "read_mapped":
                self._start(command.read_mapped.session, self._read(command.call, command.read_mapped))
            case "source_items":
                self._sources.receive(command.call, command.source_items)
            case "run_side_effect":
                given = command.run_side_effect
                effect = self._sessions[given.session].next_side_effect
                self._start(given.session, self._run_side_effect(command.call, effect, given.deadline))
            case "end_session":
                self._end(command.end_session.session)

    async def _run_side_effect(self, call: int, effect: SideEffect, deadline: float) -> None:
        self._send(await self._side_effects.run(call, effect, deadline))

    def _run_task(self, number: int, run: pb.RunTask) -> pb.RunOutcome:
        session = self._begin(number, run.begin) if run.HasField("begin") else self._sessions[number]
        return session.run(run)

    def _begin(self, number: int, begin: pb.BeginSession) -> HostSession:
        def open_source(invocation: Invocation, output: str) -> AsyncIterator[Sequence[Any]]:
            return self._sources.read(number, invocation, output)

        session = self._sessions[number] = HostSession(self._app, begin, open_source)
        if self._begun < REPEATED_REQUESTS:
            self._begun += 1
            self._repetitions[number] = Repetition(HostSession(self._app, begin, open_source))
        return session

    def _repeat(self, number: int, run: pb.RunTask, run_outcome: pb.RunOutcome) -> None:
        """Runs the code of a repeated request again. Raises `DivergenceError` if it differs."""
        repetition = self._repetitions.get(number)
        if repetition is None:
            return
        self._activity.begin(number)  # The code may run as long as the first time.
        with self._prints.collected(pb.HostReply()):
            repetition.run(self._app.app.paths[run.path].name, run, run_outcome)

    def _start(self, session: int, work: Coroutine[Any, Any, None]) -> None:
        """Starts work that is cancelled at the end of its session."""
        task = asyncio.create_task(work)
        tasks = self._tasks.setdefault(session, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _begin_mapping(self, session: int) -> None:
        """Records that code of the app maps items, until `_read` ends the record."""
        self._prints.begin()
        self._activity.begin(session)

    async def _read(self, call: int, read: pb.ReadMapped) -> None:
        reply = pb.HostReply(call=call)
        try:
            items = await anext(self._sessions[read.session].mapped_stream(read.mapped))
            reply.mapped_items.items.extend(map(encode_item, items))
            reply.mapped_items.SetInParent()
        except StopAsyncIteration:
            reply.mapped_items.ended = True
        except Exception as error:
            reply.error.CopyFrom(self._describe(error))
        if (running := self._activity.read()) is not None:
            reply.seconds = running.seconds
            self._prints.end(reply)
        self._activity.end()
        self._send(reply)

    def _end(self, number: int) -> None:
        for task in self._tasks.pop(number, ()):
            task.cancel()
        session, repetition = self._sessions.pop(number, None), self._repetitions.pop(number, None)
        if session is not None:
            self._activity.begin(number)  # The code may be suspended, and run its `finally` blocks now.
            with ExitStack() as closing:
                closing.callback(self._activity.end)
                if repetition is not None:
                    closing.callback(repetition.close)
                session.close()

    @contextmanager
    def _running(self, call: int, session: int) -> Iterator[pb.HostReply]:
        """Runs code of the app, and sends the reply, or the error that the code raised."""
        reply = pb.HostReply(call=call)
        started = perf_counter()
        self._activity.begin(session)
        try:
            yield reply
        except BaseException as error:  # Some would end the process.
            reply.error.CopyFrom(self._describe(error))
        finally:
            self._activity.end()
        reply.seconds = perf_counter() - started
        self._send(reply)

    def _describe(self, error: BaseException) -> pb.HostError:
        """Describes an exception of the app's code. Clears its traceback, which would keep the request in memory."""
        if isinstance(error, NativeRequestError):
            described = describe_invalid_request(error.cause)
        elif isinstance(error, Exception):
            described = describe_error(error, self._app.module, self._logs_messages)
        else:
            aborted = AbortedError(self._app.app.name, error)
            aborted.__cause__ = error
            described = describe_error(aborted, self._app.module, self._logs_messages)
        clear_traceback(error)
        return described

    def _send(self, reply: pb.HostReply) -> None:
        try:
            self._connection.send(reply)
        except MessageSizeError:
            message = (
                f"a response, and the inputs of unit tasks, can have at most {MAX_REPLY_BYTES} bytes in total, not "
                f"{reply.ByteSize()}: return less"
            )
            error = pb.HostError(type="ValueError", message=message)
            self._connection.send(pb.HostReply(call=reply.call, seconds=reply.seconds, error=error))

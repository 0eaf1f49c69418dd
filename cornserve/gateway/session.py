"""One request's life: play its task, dispatch what was recorded, wait for what is read, play again (DESIGN §5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from cornserve.gateway.apps import Deployed
from cornserve.gateway.channel import Channel
from cornserve.gateway.errors import NotReadyError
from cornserve.gateway.replica import Replica, Replicas
from cornserve.task import Stream, TaskError
from cornserve.task.base import Task
from cornserve.task.choice import Draws
from cornserve.task.errors import Suspension
from cornserve.task.output import layout_of
from cornserve.task.recording import Invocation, Recording
from cornserve.task.references import Origin
from cornserve.v1 import executor_pb2 as pb

T = TypeVar("T")


class StreamWantedError(TaskError):
    """A stream is read whose items the executor was not asked for: the request has to run again, with streams."""


class Dispatched:
    """An invocation at an executor: takes what comes back."""

    __slots__ = ("_progress", "_replica", "call", "channels", "invocation")

    def __init__(self, invocation: Invocation, replica: Replica, streams: bool, progress: asyncio.Event) -> None:
        self.invocation = invocation
        self.call = 0
        self._replica = replica
        self._progress = progress
        names = layout_of(invocation.task.output_type).streams if streams else ()
        self.channels = {name: Channel() for name in names}

    def start(self, message: pb.Start) -> None:
        self.call = self._replica.start(message, self)

    def cancel(self) -> None:
        if not self.invocation.ended:
            self._replica.cancel(self.call)

    def as_consumer(self) -> pb.Consumer:
        return pb.Consumer(endpoint=self._replica.endpoint, invocation=self.invocation.index)

    def on_chunk(self, output: str, item: bytes) -> None:
        channel = self.channels.get(output)
        try:
            if channel is not None:
                channel.put(layout_of(self.invocation.task.output_type).streams[output].validate_json(item))
            else:
                self.invocation.put(output, item)
                self._progress.set()
        except (KeyError, ValidationError) as error:
            self._replica.cancel(self.call)
            self.on_end("INTERNAL", f"the executor sent a wrong {output!r}: {error}", b"")

    def on_end(self, code: str, message: str, values: bytes) -> None:
        if code == "OK":
            try:
                self.invocation.end(values)
            except ValueError as error:
                self.invocation.fail("INTERNAL", f"the executor sent a wrong output: {error}")
        else:
            self.invocation.fail(code, message)
        for channel in self.channels.values():
            channel.close(self.invocation.error)
        self._progress.set()


class Session:
    """`async with Session(...) as session:` serves one request; leaving it cancels what still runs.

    Args:
        streams: whether streams are going to be read; executors do not send what nobody reads.
        attempt: counts the sessions of one request, from 0.
    """

    def __init__(
        self, request_id: str, deployed: Deployed, replicas: Replicas, *, streams: bool, attempt: int = 0
    ) -> None:
        self.request_id = request_id
        self._attempt = attempt
        self._deployed = deployed
        self._replicas = replicas
        self._streams = streams
        self._dispatched: list[Dispatched] = []
        self._progress = asyncio.Event()
        draws = Draws(request_id)
        self._path: Task[Any, Any] = deployed.app.paths[draws.choose(deployed.route.shares)]
        self._recording = Recording(draws, open_stream=self._open_stream, max_invocations=deployed.app.max_invocations)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for dispatched in self._dispatched:
            dispatched.cancel()

    async def run(self, request: Any, render: Callable[[Any], T]) -> T:
        """What `render` makes of the app's response to `request`; streams in it may still be arriving.

        `render` runs as part of the task: where it reads a value that is not there yet, that value is awaited.
        """

        while True:
            outcome = self._recording.play(self._path.name, lambda: render(self._path.invoke(request)))
            self._streams = self._streams or isinstance(outcome, Stream)
            self._dispatch()
            if not isinstance(outcome, Suspension):
                return outcome
            await self._until(outcome)

    async def _until(self, suspension: Suspension) -> None:
        invocation = self._recording.invocations[suspension.invocation]
        while not invocation.has(suspension.field):
            self._progress.clear()
            await self._progress.wait()

    def _dispatch(self) -> None:
        """Sends everything new at once; consumers wait for their tensors at their executors."""
        new = [
            Dispatched(invocation, self._replica_for(invocation), self._streams, self._progress)
            for invocation in self._recording.invocations[len(self._dispatched) :]
        ]
        self._dispatched += new
        for dispatched in new:
            dispatched.start(self._start_message(dispatched))

    def _replica_for(self, invocation: Invocation) -> Replica:
        endpoints = self._deployed.route.endpoints.get(invocation.task.key)
        if endpoints is None:
            raise TaskError(
                f"{invocation.task.name} is invoked but not deployed: unit tasks must be attributes of their task, "
                "built in post_init"
            )
        if not endpoints:
            raise NotReadyError(f"no executor of {invocation.task.name} is ready")
        return self._replicas.choose(endpoints)

    def _start_message(self, dispatched: Dispatched) -> pb.Start:
        invocation = dispatched.invocation
        return pb.Start(
            request_id=self.request_id,
            invocation=invocation.index,
            attempt=self._attempt,
            request=invocation.request,
            inputs=[
                pb.Input(pending=pb.Pending(invocation=origin.invocation, output=origin.output, attempt=self._attempt))
                for origin in invocation.inputs
            ],
            outputs=[
                *(pb.Output(name=name, to_caller=True) for name in dispatched.channels),
                *self._consumed(invocation),
            ],
        )

    def _consumed(self, producer: Invocation) -> list[pb.Output]:
        """Where the producer's tensors go: to the replicas of the invocations that take them."""
        consumers: dict[str, list[pb.Consumer]] = {}
        for dispatched in self._dispatched[producer.index + 1 :]:
            for origin in dispatched.invocation.inputs:
                if origin.invocation == producer.index:
                    consumers.setdefault(origin.output, []).append(dispatched.as_consumer())
        return [pb.Output(name=name, consumers=to) for name, to in consumers.items()]

    def _open_stream(self, origin: Origin) -> AsyncIterator[Any]:
        channel = self._dispatched[origin.invocation].channels.get(origin.output)
        if channel is None:
            raise StreamWantedError(f"{origin.output!r} of invocation {origin.invocation} was not asked for")
        return channel.read()

"""One request's life: play its task, dispatch what was recorded, wait for what is read, play again (DESIGN §5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from cornserve.gateway.deployed import Deployed
from cornserve.gateway.observe.meter import Meter
from cornserve.gateway.request.dispatch import Dispatch
from cornserve.gateway.request.replicas import Replicas
from cornserve.gateway.request.unused_fields import reject_unused
from cornserve.task import Stream, TaskError
from cornserve.task.base import Task
from cornserve.task.errors import Suspension
from cornserve.task.recording import Recording
from cornserve.task.references import Origin
from cornserve.task.replayable_random import ReplayableRandom

T = TypeVar("T")


class StreamWantedError(TaskError):
    """A stream is read whose items the executor was not asked for: the request has to run again, with streams."""


class Session:
    """`with Session(...) as session:` serves one request; leaving it cancels what still runs.

    Args:
        streams: whether streams are going to be read; executors do not send what nobody reads.
        arrived_us: when the request arrived, by the system's clock.
        deadline: when what still runs fails, by the event loop's clock.
        attempt: the first of each invocation's attempts.
    """

    def __init__(
        self,
        request_id: str,
        deployed: Deployed,
        replicas: Replicas,
        meter: Meter,
        *,
        streams: bool,
        arrived_us: int,
        deadline: float,
        attempt: int = 0,
    ) -> None:
        self._streams = streams
        self._trace = meter.trace
        self._dispatch = Dispatch(
            request_id, deployed.route, replicas, meter, attempt=attempt, arrived_us=arrived_us, deadline=deadline
        )
        random = ReplayableRandom(request_id)
        path = random.choose(deployed.route.shares)
        meter.take_path(path)
        self._path: Task[Any, Any] = deployed.app.paths[path]
        self._recording = Recording(random, open_stream=self._open_stream, max_invocations=deployed.app.max_invocations)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._dispatch.close()
        self._recording.close()
        del self._recording  # It knows this session, to open streams: a circle, too.

    @property
    def next_attempt(self) -> int:
        """For another session of the same request."""
        return self._dispatch.next_attempt

    def run(self, request: Any, render: Callable[[Any], T]) -> Awaitable[T]:
        """What `render` makes of the app's response to `request`; streams in it may still be arriving.

        `render` runs as part of the task: where it reads a value that is not there yet, that value is awaited.
        """
        return self.play(lambda path: render(reject_unused(path, request)))

    async def play(self, code: Callable[[Task[Any, Any]], T]) -> T:
        """What `code` makes of the app's path. It runs as often, and under the same rules, as a task's `invoke`."""
        while True:
            outcome = self._play_once(code)
            self._streams = self._streams or _has_stream(outcome)
            if new := self._recording.invocations[len(self._dispatch.executions) :]:
                self._dispatch.send(new, streams=self._streams)
            if not isinstance(outcome, Suspension):
                self._dispatch.complete()
                return outcome
            await self._until(outcome)

    def _play_once(self, code: Callable[[Task[Any, Any]], T]) -> T | Suspension:
        name, play = self._path.name, partial(code, self._path)
        if self._trace is None:
            return self._recording.play(name, play)
        with self._trace.play(name):
            return self._recording.play(name, play)

    async def _until(self, suspension: Suspension) -> None:
        invocation = self._recording.invocations[suspension.invocation]
        while not invocation.has_value(suspension.field):
            await self._dispatch.progress()

    def _open_stream(self, origin: Origin) -> AsyncIterator[Sequence[Any]]:
        channel = self._dispatch.executions[origin.invocation].channels.get(origin.output)
        if channel is None:
            raise StreamWantedError(f"{origin.output!r} of invocation {origin.invocation} was not asked for")
        return channel.read()


def _has_stream(outcome: object) -> bool:
    return isinstance(outcome, Stream) or (isinstance(outcome, list) and any(map(_has_stream, outcome)))

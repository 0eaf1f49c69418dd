"""One request: plays its task, dispatches new invocations, waits for the demanded value, and replays [C §5.2]."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cornserve.app.response_readers import ResponseReader
from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.play.player import PlaySettings
from cornserve.gateway.play.stream_buffer import StreamBuffer
from cornserve.gateway.request.dispatcher import Dispatcher
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.served_app import ServedApp
from cornserve.task import Stream, TaskError
from cornserve.task.errors import Suspension
from cornserve.task.references import Origin
from cornserve.task.replayable_random import ReplayableRandom

if TYPE_CHECKING:  # It loads OpenTelemetry.
    from cornserve.gateway.observe.request_trace import RequestTrace

Result = TypeVar("Result")


class StreamNotRequestedError(TaskError):
    """A stream is read whose items were not requested from the executor: the request has to run again, with streams."""


class Session:
    """`with Session(...) as session:` serves one request. Leaving it cancels all running invocations.

    Args:
        streams: whether streams will be read; otherwise executors do not send their items.
        arrived_us: when the request arrived, in microseconds since the epoch.
        deadline: when everything that still runs fails, by the event loop's clock.
        attempt: the number of each invocation's first attempt.
    """

    def __init__(
        self,
        request_id: str,
        served: ServedApp,
        replicas: ReplicaPool,
        stats: RequestStats,
        trace: RequestTrace | None = None,
        *,
        streams: bool,
        arrived_us: int,
        deadline: float,
        attempt: int = 0,
    ) -> None:
        self._streams = streams
        self._trace = trace
        self._dispatcher = Dispatcher(
            request_id,
            served.route,
            replicas,
            stats,
            trace,
            attempt=attempt,
            arrived_us=arrived_us,
            deadline=deadline,
        )
        random = ReplayableRandom(request_id)
        path = random.choose(served.route.shares)
        stats.record_path(path)
        self._player = served.code.start(
            PlaySettings(request_id, path, random, deadline, self._open_stream, stats.record_play)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._dispatcher.close()
        self._player.close()
        del self._player  # breaks the reference cycle through `_open_stream`

    @property
    def next_attempt(self) -> int:
        """The first attempt number for another session of the same request."""
        return self._dispatcher.next_attempt

    async def run(self, request: Any, reader: ResponseReader[Result]) -> Result:
        """Returns what `reader` reads in the app's response to `request`. Streams in it may be incomplete."""
        (result,) = await self.run_each([request], reader)
        return result

    async def run_each(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result]:
        """Returns what `reader` reads in the app's responses to several requests, which run concurrently."""
        while True:
            with nullcontext() if self._trace is None else self._trace.play(self._player.task_name):
                outcome = await self._player.play(requests, reader)
            self._streams = self._streams or _has_stream(outcome)
            if new := self._player.invocations[len(self._dispatcher.executions) :]:
                self._dispatcher.dispatch(new, streams=self._streams)
            if not isinstance(outcome, Suspension):
                self._dispatcher.end_recording()
                return outcome
            await self._wait_for_value(outcome)

    async def _wait_for_value(self, suspension: Suspension) -> None:
        invocation = self._player.invocations[suspension.invocation]
        while not invocation.has_value(suspension.field):
            await self._dispatcher.next_progress()

    def _open_stream(self, origin: Origin) -> StreamBuffer:
        stream = self._dispatcher.executions[origin.invocation].streams.get(origin.output)
        if stream is None:
            raise StreamNotRequestedError(
                f"stream {origin.output!r} of invocation {origin.invocation} was not requested"
            )
        return stream


def _has_stream(outcome: object) -> bool:
    return isinstance(outcome, Stream) or (isinstance(outcome, list) and any(map(_has_stream, outcome)))

"""One request: plays its task, dispatches new invocations, waits for the demanded value, and plays on [C §5.2]."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cornserve.app.response_readers import ResponseReader
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.app_logs import RequestLog
from cornserve.gateway.observe.decision_log import log_path
from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.play.player import PlaySettings
from cornserve.gateway.play.stream_buffer import StreamBuffer
from cornserve.gateway.request.dispatcher import Dispatcher
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.served_app import ServedApp
from cornserve.task import Stream, TaskError
from cornserve.task.errors import OutputSuspension, SideEffectSuspension, Suspension
from cornserve.task.references import Origin
from cornserve_policies.path_table import CellPath
from cornserve_policies.replayable_random import ReplayableRandom

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
        ids: RequestIds,
        served: ServedApp,
        replicas: ReplicaPool,
        stats: RequestStats,
        trace: RequestTrace | None = None,
        *,
        log: RequestLog,
        streams: bool,
        arrived_us: int,
        deadline: float,
        attempt: int = 0,
    ) -> None:
        self._streams = streams
        self._trace = trace
        self._dispatcher = Dispatcher(
            ids,
            served.route,
            replicas,
            stats,
            trace,
            attempt=attempt,
            arrived_us=arrived_us,
            deadline=deadline,
        )
        self._ids = ids
        self._plays = 0
        self._rounds: list[int] = []
        """The number of the play that has recorded each invocation, from 1."""
        self._stats = stats
        self._route = served.route
        self._has_path = self._route.plan is None
        """Whether the path is known. With a plan, it depends on the type of the request."""
        random = ReplayableRandom(ids.random_key, self._route.path_draws)
        drawn = self._route.draw_path(None, random) if self._has_path else None
        self._player = served.code.start(
            PlaySettings(ids.random_key, random, deadline, self._open_stream, stats.record_play, log)
        )
        if drawn is not None:
            self._player.select_path(drawn.path)
            stats.record_path(drawn.path)
            self._log_path(drawn, "shares of the app")

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

    @property
    def invocations(self) -> Sequence[RequestInvocation]:
        """All recorded invocations, in the order of the task's calls."""
        return self._player.invocations

    @property
    def rounds(self) -> list[int]:
        """The number of the play that has recorded each invocation, from 1. The last play may have failed."""
        failed = len(self.invocations) - len(self._rounds)
        return self._rounds + [self._plays + 1] * failed

    def outputs(self) -> list[dict[str, Any]]:
        """Returns the values that have arrived, by their names, of each invocation."""
        return self._player.outputs()

    def record_audio(self) -> None:
        """Times the first audio of a streamed response."""
        self._stats.record_audio()

    async def run(self, request: Any, reader: ResponseReader[Result]) -> Result:
        """Returns what `reader` reads in the app's response to `request`. Streams in it may be incomplete."""
        (result,) = await self.run_each([request], reader)
        return result

    async def run_each(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result]:
        """Returns what `reader` reads in the app's responses to several requests, which run concurrently."""
        if not self._has_path:
            await self._choose_path(requests)
        while True:
            outcome = await self._play(requests, reader)
            if reader.yields is not None and self._player.yielded:
                items = Stream[Any](source=partial(self._yielded_batches, outcome, requests, reader))
                return [reader.yields.join(items)]
            if not isinstance(outcome, Suspension):
                return outcome
            await self._wait(outcome)

    async def _play(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result] | Suspension:
        """Plays the task once, and dispatches the new invocations."""
        with nullcontext() if self._trace is None else self._trace.play(self._player.task_name):
            outcome = await self._player.play(requests, reader)
        self._streams = self._streams or _has_stream(outcome)
        self._plays += 1
        if new := self._player.invocations[len(self._dispatcher.executions) :]:
            self._rounds += [self._plays] * len(new)
            self._dispatcher.dispatch(new, streams=self._streams)
        if not isinstance(outcome, Suspension):
            self._dispatcher.end_recording()
        return outcome

    async def _yielded_batches(
        self, outcome: list[Any] | Suspension, requests: Sequence[Any], reader: ResponseReader[Any]
    ) -> AsyncIterator[Sequence[Any]]:
        """Yields the items of all that the task yields, and plays the task to its end.

        Args:
            outcome: that of the last play.
        """
        read = 0
        while True:
            for stream in self._player.yielded[read:]:
                read += 1
                async for batch in stream.batches():
                    yield batch
            if not isinstance(outcome, Suspension):
                return
            await self._wait(outcome)
            outcome = await self._play(requests, reader)

    async def _choose_path(self, requests: Sequence[Any]) -> None:
        """Chooses a cell and a path by the components that the requests need. Raises the errors of the task."""
        self._has_path = True
        assert self._route.plan is not None
        known_type = self._route.plan.type_of(await self._player.needed_components(requests))
        drawn = self._route.draw_path(known_type, ReplayableRandom(self._ids.random_key))
        self._player.select_path(drawn.path)
        self._dispatcher.use_cell(drawn.cell)
        self._stats.record_path(drawn.path, drawn, is_known=known_type is not None)
        self._log_path(drawn, "plan" if known_type else "plan, unknown type")

    def _log_path(self, drawn: CellPath, reason: str) -> None:
        if self._route.policies.log_decisions:
            log_path(self._ids.public, drawn, reason)

    async def _wait(self, suspension: Suspension) -> None:
        """Waits until the task can run on."""
        if isinstance(suspension, SideEffectSuspension):
            with nullcontext() if self._trace is None else self._trace.side_effect(suspension.call.function):
                await self._player.run_side_effect(suspension)
        elif isinstance(suspension, OutputSuspension):
            await self._wait_for_output(suspension)

    async def _wait_for_output(self, suspension: OutputSuspension) -> None:
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

"""One request: runs its task up to each demanded value, and dispatches the new invocations [C §5.2]."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from cornserve.app.response_readers import ResponseReader
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.app_logs import RequestLog
from cornserve.gateway.observe.decision_log import log_path
from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.request.dispatcher import Dispatcher
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.served_app import ServedApp
from cornserve.gateway.task_runs.stream_buffer import StreamBuffer
from cornserve.gateway.task_runs.task_runner import RunSettings
from cornserve.task import Stream, TaskError
from cornserve.task.errors import OutputSuspension, SideEffectSuspension, Suspension
from cornserve.task.references import Origin
from cornserve_policies.path_table import CellPath
from cornserve_policies.replayable_random import ReplayableRandom

if TYPE_CHECKING:  # It loads OpenTelemetry.
    from cornserve.gateway.observe.request_trace import RequestTrace

Result = TypeVar("Result")

_UNTRACED: Final = nullcontext()


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
        self._runs = 0
        self._rounds: list[int] = []
        """The number of the run that has recorded each invocation, from 1."""
        self._stats = stats
        self._route = served.route
        self._has_path = self._route.plan is None
        """Whether the path is known. With a plan, it depends on the type of the request."""
        random = ReplayableRandom(ids.random_key, self._route.path_draws)
        drawn = self._route.draw_path(None, random) if self._has_path else None
        self._runner = served.code.start(
            RunSettings(ids.random_key, random, deadline, self._open_stream, stats.record_run, log)
        )
        if drawn is not None:
            self._runner.select_path(drawn.path)
            stats.record_path(drawn.path)
            self._log_path(drawn, None, "shares of the app")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._dispatcher.close()
        self._runner.close()
        del self._runner  # breaks the reference cycle through `_open_stream`

    @property
    def next_attempt(self) -> int:
        """The first attempt number for another session of the same request."""
        return self._dispatcher.next_attempt

    @property
    def invocations(self) -> Sequence[RequestInvocation]:
        """All recorded invocations, in the order of the task's calls."""
        return self._runner.invocations

    @property
    def rounds(self) -> list[int]:
        """The number of the run that has recorded each invocation, from 1. The last run may have failed."""
        failed = len(self.invocations) - len(self._rounds)
        return self._rounds + [self._runs + 1] * failed

    def outputs(self) -> list[dict[str, Any]]:
        """Returns the values that have arrived, by their names, of each invocation."""
        return self._runner.outputs()

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
            outcome = await self._run_task(requests, reader)
            if reader.yields is not None and self._runner.yielded:
                items = Stream[Any](source=partial(self._yielded_batches, outcome, requests, reader))
                return [reader.yields.join(items)]
            if not isinstance(outcome, Suspension):
                return outcome
            await self._wait(outcome)

    async def _run_task(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result] | Suspension:
        """Runs the task once, and dispatches the new invocations."""
        with _UNTRACED if self._trace is None else self._trace.run(self._runner.task_name):
            outcome = await self._runner.run(requests, reader)
        self._streams = self._streams or _has_stream(outcome)
        self._runs += 1
        if new := self._runner.invocations[len(self._dispatcher.executions) :]:
            self._rounds += [self._runs] * len(new)
            self._dispatcher.dispatch(new, streams=self._streams)
        if not isinstance(outcome, Suspension):
            self._dispatcher.end_recording()
        return outcome

    async def _yielded_batches(
        self, outcome: list[Any] | Suspension, requests: Sequence[Any], reader: ResponseReader[Any]
    ) -> AsyncIterator[Sequence[Any]]:
        """Yields the items of all that the task yields, and runs the task to its end.

        Args:
            outcome: that of the last run.
        """
        read = 0
        while True:
            for stream in self._runner.yielded[read:]:
                read += 1
                async for batch in stream.batches():
                    yield batch
            if not isinstance(outcome, Suspension):
                return
            await self._wait(outcome)
            outcome = await self._run_task(requests, reader)

    async def _choose_path(self, requests: Sequence[Any]) -> None:
        """Chooses a cell and a path by the components that the requests need. Raises the errors of the task."""
        self._has_path = True
        assert self._route.plan is not None
        known_type = self._route.plan.type_of(await self._runner.needed_components(requests))
        drawn = self._route.draw_path(known_type, ReplayableRandom(self._ids.random_key))
        self._runner.select_path(drawn.path)
        self._dispatcher.use_path(drawn)
        self._stats.record_path(drawn.path, drawn, is_known=known_type is not None)
        self._log_path(drawn, known_type, "plan" if known_type else "plan, unknown type")

    def _log_path(self, drawn: CellPath, known_type: str | None, reason: str) -> None:
        if self._route.policies.log_decisions:
            log_path(self._ids.public, self._ids.random_key, self._route, known_type, drawn, reason)

    async def _wait(self, suspension: Suspension) -> None:
        """Waits until the task can run on."""
        if isinstance(suspension, SideEffectSuspension):
            with _UNTRACED if self._trace is None else self._trace.side_effect(suspension.call.function):
                await self._runner.run_side_effect(suspension)
        elif isinstance(suspension, OutputSuspension):
            await self._wait_for_output(suspension)

    async def _wait_for_output(self, suspension: OutputSuspension) -> None:
        invocation = self._runner.invocations[suspension.invocation]
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

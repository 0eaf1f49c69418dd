"""The interface by which a request runs its task, in the gateway or in an app host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from cornserve.app.media_slots import MediaSlot
from cornserve.app.operations import Operation
from cornserve.app.response_readers import ResponseReader
from cornserve.gateway.observe.app_logs import RequestLog
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.task_runs.stream_buffer import StreamBuffer
from cornserve.task import Stream
from cornserve.task.errors import SideEffectSuspension, Suspension
from cornserve.task.references import Origin
from cornserve_policies.replayable_random import ReplayableRandom

Result = TypeVar("Result")

OpenStream = Callable[[Origin], StreamBuffer]
"""Returns the items of a stream output."""


class RunSettings(NamedTuple):
    """The properties of a request on which its run depends."""

    random_key: str
    """Determines the random choices of the request."""
    random: ReplayableRandom
    deadline: float
    """When the request fails, by the event loop's clock."""
    open_stream: OpenStream
    record_seconds: Callable[[float], None]
    """Counts the time for which the task's code has run."""
    log: RequestLog
    """Logs what the task's code prints, and the errors of functions that it calls with `recorded`."""


class TaskRunner(Protocol):
    """Runs the task of one request.

    The task is the app's first path unless another path is selected before the first run.
    """

    task_name: str

    @property
    def invocations(self) -> Sequence[RequestInvocation]:
        """All recorded invocations, in the order of the task's calls."""

    @property
    def yielded(self) -> Sequence[Stream[Any]]:
        """All that the task has yielded so far, in order. A value is a stream of one item."""

    def outputs(self) -> list[dict[str, Any]]:
        """Returns the values that have arrived, by their names, of each invocation."""

    def select_path(self, path: int) -> None:
        """Selects a path by its index."""

    async def needed_components(self, requests: Sequence[Any]) -> frozenset[str]:
        """Returns the components that the requests need on the first path, before a value arrives [C §4.1].

        Raises the errors of the task.
        """

    async def run(self, requests: Sequence[Any], reader: ResponseReader[Result]) -> list[Result] | Suspension:
        """Runs the task for each request, and reads the responses.

        After a suspension, the task runs on: the arguments must be the same.

        If the reader reads what a task yields, and there is one request, `yielded` then has what the task has yielded.
        Returns the results, or a suspension with the value that the task waits for. Raises the errors of the task.
        """

    async def run_side_effect(self, suspension: SideEffectSuspension) -> None:
        """Runs the call with side effects for which the last run waits."""

    def close(self) -> None:
        """Frees everything that belongs to the request."""


class AppCode(Protocol):
    """The code of an app version."""

    operations: frozenset[Operation]
    """The operations that can call the app besides the native one."""

    async def parse(self, body: bytes | bytearray) -> tuple[Any, list[MediaSlot]]:
        """Returns the request of a native call, and the image URLs in it. Raises ValidationError."""

    def start(self, settings: RunSettings) -> TaskRunner:
        """Returns the runner of one request."""

    def close(self) -> None:
        """Frees the app when its last request has ended."""

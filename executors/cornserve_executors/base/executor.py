"""The base class of executors, and the exceptions that it may raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Literal, TypeVar

from prometheus_client import Metric
from pydantic import BaseModel, TypeAdapter

from cornserve.task import Output
from cornserve.task.errors import DefinitionError
from cornserve.task.output import OutputLayout, output_layout
from cornserve_executors.base.context import InvocationContext

Config = TypeVar("Config", bound=BaseModel)
Request = TypeVar("Request", bound=BaseModel)
Result = TypeVar("Result", bound=Output)

ProgressReporter = Callable[[str], None]
"""Reports what a starting executor is doing, for example "loading weights"."""


class ExecutorStartError(Exception):
    """The executor cannot start for a reason that its operator can fix. The message becomes the last line of its
    log."""


class TransientStartError(ExecutorStartError):
    """The executor did not start, but may start the next time: a GPU or a port may have been in use."""


class InvalidRequestError(ValueError):
    """This executor can never serve the request. The client receives the message."""


class OverloadedError(Exception):
    """The executor has no capacity now. Another replica, or a later attempt, may succeed."""


class HandedOverError(Exception):
    """Another replica continues the invocation after the items that were sent. See
    `InvocationContext.wants_hand_over`."""


class CannotContinueError(Exception):
    """The invocation cannot go on exactly where an earlier attempt has ended. The client receives the message."""


class NotRepeatedError(CannotContinueError):
    """The invocation runs again, but its output differs from that which an earlier attempt has sent."""

    def __init__(self) -> None:
        super().__init__("its executor died, and another one does not repeat the part of its output that was sent")


class EngineDeadError(Exception):
    """The executor's engine has died: the process ends all invocations with ABORTED and exits."""


class Executor(Generic[Config, Request, Result]):
    """Runs one or more components of a model.

    A subclass defines its three types and implements the hooks:

        class UppercaseExecutor(Executor[UppercaseTask, Text, UppercaseText]):
            async def invoke(self, request: Text, context: InvocationContext) -> UppercaseText:
                return UppercaseText(text=request.text.upper())

    An invocation is cancelled by cancelling its coroutine.
    """

    continues: ClassVar[bool] = False
    """Whether `invoke` continues after `InvocationContext.delivered` exactly as the earlier attempt would have."""

    repeats: ClassVar[Literal["", "in order", "in any order"]] = ""
    """Whether `invoke`, which runs again from its start, produces the same items. Those that were delivered are
    compared, and not sent again. "in order": none may differ before all of them have come again."""

    limits_consumers: ClassVar[bool] = False
    """Whether the tensors for one of several consumers use at most its share of the memory, because a consumer copies
    them soon after they are published. One that hangs then stops no tensor for the others."""

    layout: OutputLayout
    """The fields of its output."""
    config_type: ClassVar[type[BaseModel]]
    request_adapter: ClassVar[TypeAdapter[Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            origin = getattr(base, "__origin__", None)
            arguments: tuple[Any, ...] = getattr(base, "__args__", ())
            if not (isinstance(origin, type) and issubclass(origin, Executor)):
                continue
            are_open = [isinstance(argument, TypeVar) for argument in arguments]
            if all(are_open):  # The subclass is a generic base class.
                continue
            if len(arguments) != 3 or any(are_open):
                raise DefinitionError(f"{cls.__name__} must derive from Executor[Config, Request, Result]")
            cls.config_type, cls.request_adapter = arguments[0], TypeAdapter(arguments[1])
            cls.layout = output_layout(arguments[2])

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def max_model_len(self) -> int:
        """The maximum number of tokens of a prompt and its response together, once the executor is ready. 0: without a
        limit of tokens."""
        return 0

    @property
    def max_running(self) -> int:
        """The number of invocations that are computed at the same time, once the executor is ready. 0: unknown."""
        return 0

    @property
    def model_digest(self) -> str:
        """A digest of the model's files and of the software that runs them, once the executor is ready. Another
        executor of the same unit task with the same digest continues outputs of this one. Empty: unknown."""
        return ""

    async def start(self, report_progress: ProgressReporter) -> None:
        """Loads the model and warms up. The executor is ready when this returns. Must not block the event loop.

        Raises `ExecutorStartError` for errors that the operator can fix; any other exception leaves a traceback.
        """

    async def invoke(self, request: Request, context: InvocationContext) -> Result:
        """Runs one invocation; many run concurrently.

        Raises `InvalidRequestError`, `OverloadedError` or `EngineDeadError` where they apply; any other exception is an
        internal error.
        """
        raise NotImplementedError

    async def wait_engine_death(self) -> str:
        """Waits until the engine has died, even while no invocation runs; returns the reason. By default, never
        returns."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self) -> None:
        """Frees all resources. Called once, after the last invocation, even if `start` failed."""

    def metrics(self) -> Iterable[Metric]:
        """Returns the executor's own metrics. Called by another thread at each scrape."""
        return ()

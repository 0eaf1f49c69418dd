"""The contract between an executor and the base that serves it: three hooks, and what they may raise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from prometheus_client import Metric
from pydantic import BaseModel, TypeAdapter

from cornserve.task import Output
from cornserve.task.errors import DefinitionError
from cornserve.task.output import output_layout
from cornserve_executors.base.call import Call

Config = TypeVar("Config", bound=BaseModel)
Request = TypeVar("Request", bound=BaseModel)
Result = TypeVar("Result", bound=Output)


class StartError(Exception):
    """The executor cannot start, for a reason that a person can do something about; it becomes the log's last line."""


class InvalidRequestError(ValueError):
    """The request can never be served by this executor; the client is told why."""


class OverloadedError(Exception):
    """The executor has no room now; another replica, or a later try, may have."""


class EngineDeadError(Exception):
    """The engine under the executor is gone: the process answers what is in flight with an error, and exits."""


class Report(Protocol):
    def __call__(self, message: str) -> None:
        """Says what a start-up is busy with ("loading weights")."""


class Executor(Generic[Config, Request, Result]):
    """Runs one or more components of a model.

    A subclass states its three types and implements the hooks:

        class Shout(Executor[ShoutConfig, Text, Loud]):
            async def invoke(self, request: Text, call: Call) -> Loud:
                return Loud(text=request.text.upper())

    An invocation is cancelled by cancelling its coroutine.
    """

    continues: ClassVar[bool] = False
    """Whether `invoke` goes on after `Call.delivered`, exactly as the executor that died would have."""

    makes_tensors: ClassVar[bool] = False
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
            if all(are_open):  # A base for others.
                continue
            if len(arguments) != 3 or any(are_open):
                raise DefinitionError(f"{cls.__name__} must derive from Executor[Config, Request, Result]")
            cls.config_type, cls.request_adapter = arguments[0], TypeAdapter(arguments[1])
            cls.makes_tensors = bool(output_layout(arguments[2]).tensors)

    def __init__(self, config: Config) -> None:
        self.config = config

    async def start(self, report: Report) -> None:
        """Loads and warms up. The executor is ready when this returns; it must not block the event loop for long.

        Raises `StartError` for what whoever started it can put right; any other exception leaves a traceback.
        """

    async def invoke(self, request: Request, call: Call) -> Result:
        """Runs one invocation; many run at once.

        Raises `InvalidRequestError`, `OverloadedError` or `EngineDeadError` where they apply; any
        other exception is an internal error.
        """
        raise NotImplementedError

    async def death(self) -> str:
        """Returns, with the reason, when the engine has died, also while nothing runs. By default it never does."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self) -> None:
        """Frees everything. Called once, after the last invocation, also if `start` failed."""

    def metrics(self) -> Iterable[Metric]:
        """Metrics of the executor's own, asked for by another thread when they are scraped."""
        return ()

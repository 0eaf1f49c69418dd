"""The contract between an executor and the base that serves it: three hooks, and the call they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from prometheus_client import Metric
from pydantic import BaseModel, TypeAdapter

from cornserve.task import Output, Tensor
from cornserve.task.errors import DefinitionError
from cornserve.task.output import layout_of
from cornserve.transport import Received, Slot
from cornserve_executors.base.tensors import Tensors

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


class Call:
    """One invocation, as the executor sees it."""

    __slots__ = ("_send", "_tensors", "attempt", "delivered", "invocation", "outputs", "request_id")

    def __init__(
        self,
        request_id: str,
        invocation: int,
        attempt: int,
        outputs: frozenset[str],
        send: Callable[[str, bytes], Awaitable[None]],
        delivered: Mapping[str, Sequence[bytes]],
        tensors: Tensors,
    ) -> None:
        self.request_id = request_id
        self.invocation = invocation
        self.attempt = attempt
        self.outputs = outputs
        self.delivered = delivered
        """By output: the items that an executor has sent before it died, as JSON. Only for executors that continue."""
        self._send = send
        self._tensors = tensors

    @property
    def id(self) -> str:
        """Names this attempt of this invocation, uniquely."""
        return f"{self.request_id}/{self.invocation}/{self.attempt}"

    def wants(self, output: str) -> bool:
        """Whether anybody waits for this stream. What nobody wants need not be made."""
        return output in self.outputs

    async def send(self, output: str, item: bytes) -> None:
        """Sends the next item of a stream, or a value ahead of the end, as JSON. Waits while the caller is behind."""
        await self._send(output, item)

    async def receive(self, tensor: Tensor) -> Received:
        """The data of one of the request's tensors, as soon as it is there. It may be read until the invocation ends;
        `check` it after the last read.

        An invocation that waits here counts as one that has not begun: it must not hold what others need to go on.

        Raises `InputLostError`, which the caller has to hear of: do not catch it.
        """
        return await self._tensors.receive(tensor)

    async def receive_all(self, tensors: Sequence[Tensor]) -> list[Received]:
        """Several, which may arrive in any order; in the order asked for."""
        return await self._tensors.receive_all(tensors)

    async def allocate(self, output: str, nbytes: int) -> Slot:
        """Room for the tensor that becomes this output once it is published. Waits while there is none.

        Raises `TooLargeError` if there can never be so much.
        """
        return await self._tensors.allocate(output, nbytes)

    def reuse(self, output: str, key: str) -> bool:
        """Publishes the tensor that an earlier invocation has published under this key, if it is still there."""
        return self._tensors.reuse(output, key)


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
            cls.makes_tensors = bool(layout_of(arguments[2]).tensors)

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

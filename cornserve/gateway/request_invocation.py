"""The interface of an invocation of a request, whose task runs in the gateway or in an app host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from cornserve.task.errors import InvocationError
from cornserve.task.references import Blob, Origin
from cornserve_policies.input_size import InputSize


class RequestInvocation(Protocol):
    """An invocation of a request: the input for an executor, and the part of the output that has arrived."""

    @property
    def index(self) -> int: ...

    @property
    def task_name(self) -> str: ...

    @property
    def line(self) -> str:
        """The line of the app that makes the call, such as "app.py:12"."""

    @property
    def executor_key(self) -> str: ...

    @property
    def request(self) -> bytes:
        """The input as JSON, with `{"$input": n}` for the n-th of `inputs`."""

    @property
    def inputs(self) -> Sequence[Origin | Blob]: ...

    @property
    def size(self) -> InputSize: ...

    @property
    def origins(self) -> Collection[Origin]:
        """The outputs of other invocations among the inputs."""

    @property
    def ended(self) -> bool: ...

    @property
    def error(self) -> InvocationError | None: ...

    @property
    def stream_names(self) -> Collection[str]: ...

    @property
    def has_values(self) -> bool: ...

    @property
    def has_tensors(self) -> bool:
        """Whether the output has tensors, single or in streams."""

    @property
    def tensor_stream_names(self) -> Collection[str]: ...

    @property
    def has_only_tensor_streams(self) -> bool:
        """Whether the output has no other fields than streams of tensors."""

    @property
    def has_early_values(self) -> bool:
        """Whether a value arrived before the invocation ended."""

    @property
    def is_continuable(self) -> bool:
        """Whether another executor can continue the streams exactly."""

    @property
    def reported_usage(self) -> object:
        """The field `usage` of the complete output, if it has one."""

    def set_value(self, field: str, value: bytes) -> None:
        """Stores a value, given as JSON. Raises KeyError or ValueError if it is not valid."""

    def finish(self, values: bytes) -> None:
        """Stores the remaining values, given as a JSON object. Raises ValueError if they are not valid."""

    def fail_with(self, error: InvocationError) -> None: ...

    def has_value(self, field: str | None) -> bool:
        """Returns whether reading `field` (all values if None) does not wait."""

    def load_item(self, stream: str, item: bytes) -> Any:
        """Returns the item of a stream as it is kept. Raises KeyError or ValueError if it is not valid."""

    def dump_item(self, stream: str, item: Any) -> bytes:
        """Returns the JSON of an item that `load_item` returned."""

"""An invocation of a task that runs in an app host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pydantic_core import from_json

from cornserve.app_host.invocation_failure import describe_failure
from cornserve.task.divergence import changed_input, changed_task
from cornserve.task.errors import InvocationError
from cornserve.task.references import Blob, Origin
from cornserve.v1 import app_host_pb2 as pb
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_response import Usage


class HostedInvocation:
    """Keeps outputs as JSON: only the host knows their types.

    Args:
        on_update: is called with each part of the output that arrives.
    """

    __slots__ = (
        "_early_fields",
        "_on_update",
        "ended",
        "error",
        "executor_key",
        "has_only_tensor_streams",
        "has_tensors",
        "has_values",
        "index",
        "inputs",
        "is_continuable",
        "line",
        "origins",
        "reported_usage",
        "reports_usage",
        "request",
        "size",
        "stream_names",
        "task_name",
        "tensor_stream_names",
    )

    def __init__(
        self,
        index: int,
        recorded: pb.RecordedInvocation,
        inputs: Sequence[Origin | Blob],
        on_update: Callable[[pb.Update], None],
    ) -> None:
        self.index = index
        self.task_name = recorded.task
        self.executor_key = recorded.key
        self.request = recorded.request
        self.line = recorded.line
        size = recorded.size
        self.size = InputSize(size.text, size.media, size.output, size.items)
        self.inputs = inputs
        self.origins: Collection[Origin] = {value for value in inputs if isinstance(value, Origin)}
        self.stream_names: Collection[str] = tuple(recorded.streams)
        self.has_values = recorded.has_values
        self.has_tensors = bool(recorded.tensors or recorded.tensor_streams)
        self.tensor_stream_names: Collection[str] = tuple(recorded.tensor_streams)
        self.has_only_tensor_streams = bool(recorded.tensor_streams) and not (
            recorded.tensors or recorded.streams or recorded.has_values
        )
        self.is_continuable = recorded.continues
        self.reports_usage = recorded.reports_usage
        self.reported_usage: Usage | None = None
        self.ended = False
        self.error: InvocationError | None = None
        self._early_fields: set[str] = set()
        self._on_update = on_update

    @property
    def has_early_values(self) -> bool:
        return bool(self._early_fields)

    def has_value(self, field: str | None) -> bool:
        return self.ended or field in self._early_fields

    def set_value(self, field: str, value: bytes) -> None:
        self._early_fields.add(field)
        self._on_update(pb.Update(invocation=self.index, value=pb.EarlyValue(field=field, json=value)))

    def finish(self, values: bytes) -> None:
        if self.reports_usage and b'"usage"' in values:
            self.reported_usage = Usage.model_validate(from_json(values)["usage"])
        self.ended = True
        self._on_update(pb.Update(invocation=self.index, values=values))

    def fail_with(self, error: InvocationError) -> None:
        self.error = error
        self.ended = True
        self._on_update(pb.Update(invocation=self.index, failure=describe_failure(error)))

    def load_item(self, stream: str, item: bytes) -> bytes:
        if stream not in self.stream_names:
            raise KeyError(stream)
        return item

    def dump_item(self, stream: str, item: bytes) -> bytes:
        return item

    def difference(self, recorded: pb.RecordedInvocation, inputs: Sequence[Origin | Blob]) -> str:
        """Returns how the invocation that another host has recorded differs from this one. Empty if it does not."""
        if self.executor_key != recorded.key:
            return changed_task(self.task_name, self.line, recorded.task, recorded.line)
        if (self.request, list(self.inputs)) != (recorded.request, list(inputs)):
            return changed_input(self.request, self.line, recorded.request, recorded.line)
        return ""

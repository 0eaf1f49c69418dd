"""The composite tasks of the record-and-replay benchmark, with any number of invocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from cornserve import Output, Task, Tensor, UnitTask


class TextInput(BaseModel):
    text: str
    embedding: Tensor | None = None


class TextOutput(Output):
    embedding: Tensor = Tensor()
    text: str


class TextTask(UnitTask[TextInput, TextOutput]):
    executor = "say"


TextFunction = Callable[[TextInput], TextOutput]
"""`TextTask.invoke`, or the plain function that replaces it in the baseline."""


def fan_out(call: TextFunction, invocations: int) -> list[TextOutput]:
    """Runs independent invocations."""
    return [call(TextInput(text=f"part {index} of a longer text")) for index in range(invocations)]


def tensor_chain(call: TextFunction, invocations: int) -> TextOutput:
    """Passes each tensor to the next invocation: one round with edges."""
    output = call(TextInput(text="the first part of a longer text"))
    for index in range(1, invocations):
        output = call(TextInput(text=f"part {index} of a longer text", embedding=output.embedding))
    return output


def value_chain(call: TextFunction, invocations: int) -> TextOutput:
    """Reads each value before the next invocation: one round per invocation."""
    output = call(TextInput(text="the first part of a longer text"))
    for _ in range(1, invocations):
        output = call(TextInput(text=output.text))
    return output


SHAPES: Mapping[str, Callable[[TextFunction, int], Any]] = {
    "fan-out": fan_out,
    "chain of tensors": tensor_chain,
    "chain of values": value_chain,
}


class CompositeTask(Task[int, Any]):
    """A task of a given shape. Its request is the number of invocations."""

    shape: str

    def post_init(self) -> None:
        self.text_task = TextTask()

    def invoke(self, request: int) -> Any:
        return SHAPES[self.shape](self.text_task.invoke, request)

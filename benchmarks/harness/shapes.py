"""The composite tasks of the record-and-replay benchmark, each with as many invocations as one likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from cornserve import Output, Task, Tensor, UnitTask


class Text(BaseModel):
    text: str
    embedding: Tensor | None = None


class Said(Output):
    embedding: Tensor = Tensor()
    text: str


class Say(UnitTask[Text, Said]):
    executor = "say"


Speak = Callable[[Text], Said]
"""`Say.invoke`, or the plain function that stands in for it in the yardstick."""


def fan_out(say: Speak, invocations: int) -> list[Said]:
    """Nothing depends on anything."""
    return [say(Text(text=f"part {index} of what there is to say")) for index in range(invocations)]


def tensor_chain(say: Speak, invocations: int) -> Said:
    """Each takes the tensor of the one before: one round, with edges."""
    said = say(Text(text="the first of what there is to say"))
    for index in range(1, invocations):
        said = say(Text(text=f"part {index} of what there is to say", embedding=said.embedding))
    return said


def value_chain(say: Speak, invocations: int) -> Said:
    """Each reads what the one before said: as many rounds as invocations."""
    said = say(Text(text="the first of what there is to say"))
    for _ in range(1, invocations):
        said = say(Text(text=said.text))
    return said


SHAPES: Mapping[str, Callable[[Speak, int], Any]] = {
    "fan-out": fan_out,
    "chain of tensors": tensor_chain,
    "chain of values": value_chain,
}


class Composite(Task[int, Any]):
    """Its request is the number of invocations."""

    shape: str

    def post_init(self) -> None:
        self.say = Say()

    def invoke(self, request: int) -> Any:
        return SHAPES[self.shape](self.say.invoke, request)

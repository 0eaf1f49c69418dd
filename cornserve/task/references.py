"""References: what a unit task's input or output names without holding it.

A `Tensor` stays with the executor that made it; a `Stream` arrives in pieces. Inside `invoke` both are plain
objects that can be kept in lists, passed to other tasks and returned, but not looked into. When an input is
written down, its references are lifted out of the JSON, and become the edges of the graph; so are its `Blob`s, bytes
that do not belong into JSON. The executor puts both back in their places. In any other JSON they are null: there is
nothing to write down.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Never, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cornserve.task.errors import AbortedError

Item = TypeVar("Item")
Mapped = TypeVar("Mapped")


class Origin(NamedTuple):
    """The output that a reference stands for."""

    invocation: int
    output: str


class ReferenceEncoder:
    """Collects what travels beside an input's JSON while that is written; passed to pydantic as the context."""

    __slots__ = ("inputs",)

    def __init__(self) -> None:
        self.inputs: list[Origin | Blob] = []

    def lift(self, what: Origin | Blob) -> dict[str, int]:
        self.inputs.append(what)
        return {"$input": len(self.inputs) - 1}


class ReferenceDecoder:
    """What has travelled beside an input's JSON; passed to pydantic as the context in which that is read."""

    __slots__ = ("_inputs",)

    def __init__(self, inputs: Sequence[Tensor | Blob]) -> None:
        self._inputs = inputs

    def put_back(self, value: object) -> object:
        """What the JSON names by its index; everything else as it is."""
        match value:
            case {"$input": int(index)} if 0 <= index < len(self._inputs):
                return self._inputs[index]
        return value


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that an input holds: an image as it came, a piece of audio. They travel beside the JSON, as they are."""

    data: bytes = field(repr=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _reference_schema(cls)


class Tensor:
    """Data that an executor holds: embeddings, hidden states, latents. The gateway never sees the bytes.

    A field `x: Tensor = Tensor()` of an output says that the executor will produce one.
    """

    __slots__ = ("origin",)

    def __init__(self, origin: Origin | None = None) -> None:
        self.origin = origin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.origin == other.origin

    def __hash__(self) -> int:
        return hash(self.origin)

    def __deepcopy__(self, memo: object) -> Tensor:
        """What pydantic does with each default."""
        return self

    def __repr__(self) -> str:
        return f"Tensor({self.origin!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _reference_schema(cls)


class Stream(Generic[Item]):
    """Values, or tensors, that arrive one after the other.

    A field `x: Stream[Chunk] = Stream()` of an output says that the executor will send them. A composite task
    may pass a stream on, or `map` it; only whoever serves the response iterates over it.
    """

    __slots__ = ("_source", "origin")

    def __init__(
        self, origin: Origin | None = None, source: Callable[[], AsyncIterator[Sequence[Item]]] | None = None
    ) -> None:
        self.origin = origin
        self._source = source

    def map(self, fn: Callable[[Item], Mapped]) -> Stream[Mapped]:
        """The stream of `fn(item)`; runs in the gateway as items arrive."""
        source = self._source
        if source is None:
            return Stream()

        async def mapped() -> AsyncIterator[Sequence[Mapped]]:
            async for items in source():
                done: list[Mapped] = []
                try:
                    for item in items:
                        done.append(fn(item))  # noqa: PERF401 - what is before an error counts
                except BaseException as error:
                    yield done
                    if isinstance(error, Exception):
                        raise
                    # Such an error would end the whole process.
                    raise AbortedError("a function mapped over a stream", error) from error
                yield done

        return Stream(source=mapped)

    @property
    def is_mapped(self) -> bool:
        """Whether the items are made in the gateway, and no output has them."""
        return self.origin is None and self.is_open

    @property
    def is_open(self) -> bool:
        """Whether there is something to iterate over."""
        return self._source is not None

    def batches(self) -> AsyncIterator[Sequence[Item]]:
        """All items that have arrived, whenever some have: who falls behind catches up, as a batch costs little more
        than an item.
        """
        if self._source is None:
            raise TypeError("this stream belongs to no running request")
        return self._source()

    def __aiter__(self) -> AsyncIterator[Item]:
        return _each(self.batches())

    def __iter__(self) -> Never:
        raise TypeError("a Stream cannot be iterated inside `invoke`: return it, map it, or read a value of the output")

    def __deepcopy__(self, memo: object) -> Stream[Item]:
        """What pydantic does with each default."""
        return self

    def __repr__(self) -> str:
        return f"Stream({self.origin!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _reference_schema(cls)


async def _each(batches: AsyncIterator[Sequence[Item]]) -> AsyncIterator[Item]:
    async for items in batches:
        for item in items:
            yield item


def _reference_schema(cls: type[Tensor] | type[Stream[Any]] | type[Blob]) -> CoreSchema:
    def read(value: Any, info: core_schema.ValidationInfo) -> Any:
        found = info.context.put_back(value) if isinstance(info.context, ReferenceDecoder) else value
        if not isinstance(found, cls):
            raise PydanticCustomError("reference", "{kind} cannot be written as JSON", {"kind": f"a {cls.__name__}"})
        return found

    return core_schema.with_info_plain_validator_function(
        read, serialization=core_schema.plain_serializer_function_ser_schema(_serialise, info_arg=True)
    )


def _serialise(reference: Tensor | Stream[Any] | Blob, info: core_schema.SerializationInfo) -> object:
    edges = info.context
    if not isinstance(edges, ReferenceEncoder):
        return reference if info.mode == "python" else None
    if isinstance(reference, Blob):
        return edges.lift(reference)
    if reference.origin is None:
        kind = type(reference).__name__
        raise ValueError(f"a mapped {kind} cannot be the input of a unit task: mapping happens in the gateway")
    return edges.lift(reference.origin)

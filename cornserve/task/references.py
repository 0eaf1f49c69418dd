"""References: values of unit tasks' inputs and outputs that travel outside of the JSON.

A `Tensor` stays in the executor that produced it, and so do the tensors of a `TensorStream`; a `Stream` arrives item by
item. Inside `invoke`, they are opaque objects that can be stored in lists, passed to other tasks and returned. When an
input is serialized, its references are extracted from the JSON and become the edges of the graph. Its `Blob`s, raw
bytes, are extracted as well. The executor inserts both again. In any other JSON, references are null.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, Never, Self, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cornserve.task.errors import AbortedError, ReleasedOutputError

Item = TypeVar("Item")
Mapped = TypeVar("Mapped")


class Origin(NamedTuple):
    """Identifies the output to which a reference refers."""

    invocation: int
    output: str


_RELEASED = Origin(-1, "")
"""The origin of a reference whose request has ended."""


class ReferenceEncoder:
    """Extracts references and blobs from an input while pydantic serializes it; passed to pydantic as the context."""

    __slots__ = ("inputs",)

    def __init__(self) -> None:
        self.inputs: list[Origin | Blob] = []

    def extract(self, value: Origin | Blob) -> dict[str, int]:
        """Appends the value to `inputs`. Returns the JSON that takes its place. Each blob is appended once."""
        if isinstance(value, Blob):
            for index, known in enumerate(self.inputs):
                if known is value:
                    return {"$input": index}
        self.inputs.append(value)
        return {"$input": len(self.inputs) - 1}


class ReferenceDecoder:
    """Inserts references and blobs into an input while pydantic validates it; passed to pydantic as the context."""

    __slots__ = ("_inputs",)

    def __init__(self, inputs: Sequence[Origin | Blob]) -> None:
        self._inputs = inputs

    def resolve(self, value: object) -> object:
        """Returns the n-th input for `{"$input": n}`, and any other value unchanged."""
        match value:
            case {"$input": int(index)} if 0 <= index < len(self._inputs):
                return self._inputs[index]
        return value


@dataclass(frozen=True, slots=True)
class Blob:
    """Raw bytes in an input, such as an encoded image or audio. They travel next to the JSON, unencoded."""

    data: bytes = field(repr=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _reference_schema(cls)


class TensorReference:
    """Base class of the references to data in the memory of an executor. The gateway never receives the bytes."""

    __slots__ = ("origin",)

    def __init__(self, origin: Origin | None = None) -> None:
        self.origin = origin

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.origin == other.origin

    def __hash__(self) -> int:
        return hash(self.origin)

    def release(self) -> None:
        """Makes the reference unusable after its request."""
        self.origin = _RELEASED

    def __deepcopy__(self, memo: object) -> Self:
        # pydantic copies each default value.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.origin!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _reference_schema(cls)


class Tensor(TensorReference):
    """Data in the memory of an executor: embeddings, hidden states, latents.

    A field `x: Tensor = Tensor()` of an output declares that the executor produces one.
    """

    __slots__ = ()


class TensorStream(TensorReference):
    """A sequence of tensors, which its consumer reads while the executor still produces it: hidden states, codes.

    A field `x: TensorStream = TensorStream()` of an output declares that the executor produces one. It has at most one
    consumer, which is recorded before `invoke` waits for a value.
    """

    __slots__ = ()


class Stream(Generic[Item]):
    """Values that arrive one after the other.

    A field `x: Stream[Chunk] = Stream()` of an output declares that the executor sends them. A composite task can
    return a stream or `map` it. Only the gateway, which serves the response, iterates over it.
    """

    __slots__ = ("_mapped_from", "_source", "origin")

    def __init__(
        self, origin: Origin | None = None, source: Callable[[], AsyncIterator[Sequence[Item]]] | None = None
    ) -> None:
        self.origin = origin
        self._source = source
        self._mapped_from: Stream[Any] | None = None

    def map(self, fn: Callable[[Item], Mapped]) -> Stream[Mapped]:
        """Returns the stream of `fn(item)`. `fn` runs where the task runs, as items arrive.

        Raises `ReleasedOutputError` if the request of the stream has ended.
        """
        self.check_released()
        source = None if self._source is None else partial(_map_batches, self._source, fn)
        stream: Stream[Mapped] = Stream(source=source)
        stream._mapped_from = self
        return stream

    def release(self) -> None:
        """Makes the stream, and those that are mapped from it, unusable after its request."""
        self.origin, self._source = _RELEASED, None

    def check_released(self) -> None:
        """Raises `ReleasedOutputError` if the request of the stream has ended."""
        stream: Stream[Any] | None = self
        while stream is not None:
            if stream.origin is _RELEASED:
                raise ReleasedOutputError("a Stream")
            stream = stream._mapped_from

    @property
    def mapped_from(self) -> Origin | None:
        """The output from which `map` computes the items, also through several functions. None without one."""
        stream = self._mapped_from
        while stream is not None and stream._mapped_from is not None:
            stream = stream._mapped_from
        return None if stream is None else stream.origin

    @property
    def is_mapped(self) -> bool:
        """Whether the items are computed in the gateway, and are not an output of an invocation.

        Raises `ReleasedOutputError` if the request of the stream has ended.
        """
        return self.is_open and self.origin is None

    @property
    def is_open(self) -> bool:
        """Whether the stream can be iterated over. Raises `ReleasedOutputError` if its request has ended."""
        self.check_released()
        return self._source is not None

    def batches(self) -> AsyncIterator[Sequence[Item]]:
        """Yields the items in batches of all items that have arrived since the last batch.

        A slow consumer catches up, because a batch costs little more than a single item.

        Raises `ReleasedOutputError` if the request of the stream has ended.
        """
        self.check_released()
        if self._source is None:
            raise TypeError("the stream does not belong to a running request")
        return self._source()

    def __aiter__(self) -> AsyncIterator[Item]:
        return _each(self.batches())

    def __iter__(self) -> Never:
        raise TypeError("a Stream cannot be iterated inside `invoke`: return it, map it, or read a value of the output")

    def __deepcopy__(self, memo: object) -> Stream[Item]:
        # pydantic copies each default value.
        return self

    def __repr__(self) -> str:
        return f"Stream({self.origin!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _reference_schema(cls)


async def _map_batches(
    source: Callable[[], AsyncIterator[Sequence[Item]]], fn: Callable[[Item], Mapped]
) -> AsyncIterator[Sequence[Mapped]]:
    async for items in source():
        done: list[Mapped] = []
        try:
            for item in items:
                done.append(fn(item))  # noqa: PERF401 - items before an error are yielded
        except BaseException as error:
            yield done
            if isinstance(error, Exception):
                raise
            # The error itself would end the process.
            raise AbortedError("a function mapped over a stream", error) from error
        yield done


async def _each(batches: AsyncIterator[Sequence[Item]]) -> AsyncIterator[Item]:
    async for items in batches:
        for item in items:
            yield item


def _reference_schema(cls: type[TensorReference] | type[Stream[Any]] | type[Blob]) -> CoreSchema:
    def read(value: Any, info: core_schema.ValidationInfo) -> Any:
        found = info.context.resolve(value) if isinstance(info.context, ReferenceDecoder) else value
        if isinstance(found, Origin) and issubclass(cls, TensorReference):
            return cls(found)
        if isinstance(found, TensorReference) and not isinstance(found, cls):
            kinds = {"kind": cls.__name__, "found": type(found).__name__}
            raise PydanticCustomError("reference", "expected a {kind}, not a {found}", kinds)
        if not isinstance(found, cls):
            raise PydanticCustomError("reference", "{kind} cannot be written as JSON", {"kind": f"a {cls.__name__}"})
        return found

    return core_schema.with_info_plain_validator_function(
        read, serialization=core_schema.plain_serializer_function_ser_schema(_serialise, info_arg=True)
    )


def _serialise(reference: TensorReference | Stream[Any] | Blob, info: core_schema.SerializationInfo) -> object:
    encoder = info.context
    if not isinstance(encoder, ReferenceEncoder):
        return reference if info.mode == "python" else None
    if isinstance(reference, Blob):
        return encoder.extract(reference)
    if reference.origin is None:
        kind = type(reference).__name__
        raise ValueError(f"a mapped {kind} cannot be the input of a unit task: mapping happens in the gateway")
    if reference.origin is _RELEASED:
        raise ReleasedOutputError(f"a {type(reference).__name__}")
    return encoder.extract(reference.origin)

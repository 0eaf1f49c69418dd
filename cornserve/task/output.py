"""Outputs of unit tasks, before and after their values are available.

A recording returns a *pending* output: an instance of a subclass of the task's output type that already has its tensors
and streams. Reading any other field suspends the run until the value is available. User code therefore sees a reference
or a plain value, and never a proxy of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Never, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter

from cornserve.task.errors import DefinitionError, ReleasedOutputError
from cornserve.task.lazy_model import lazy_subclass, stored_fields
from cornserve.task.references import Stream, Tensor, TensorReference, TensorStream

OutputT = TypeVar("OutputT", bound="Output")

ReadValue = Callable[[str | None], Any]
"""Returns the value of the named field, or of all fields for None. Raises if the value is not available."""


class Output(BaseModel):
    """Base class of unit tasks' outputs. A reference must be a separate field, not part of a list or another model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def values_json(self) -> bytes:
        """Returns the values as a JSON object: an executor sends it when the invocation ends."""
        return self.__pydantic_serializer__.to_json(self, include=set(output_layout(type(self)).values))


_LAYOUT = "__cornserve_layout__"
_PENDING_TYPE = "__cornserve_pending_type__"
_RELEASED_TYPE = "__cornserve_released_type__"


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """The fields of an output type: tensors, streams of tensors, streams (with their items' type) and values."""

    tensors: frozenset[str]
    tensor_streams: frozenset[str]
    streams: Mapping[str, TypeAdapter[Any]]
    values: Mapping[str, TypeAdapter[Any]]

    @property
    def has_tensors(self) -> bool:
        """Whether the executor keeps tensors, single or in streams, for other invocations."""
        return bool(self.tensors or self.tensor_streams)


def output_layout(output_type: type[Output]) -> OutputLayout:
    """Raises `DefinitionError` if a field contains a reference inside another type."""
    layout: OutputLayout = _cached_in_type(output_type, _LAYOUT, _make_layout)
    return layout


def _cached_in_type(output_type: type[Output], attribute: str, make: Callable[[type[Output]], Any]) -> Any:
    """Caches in the type itself, so that the result is freed together with the app that defines the type."""
    cached = output_type.__dict__.get(attribute)
    if cached is None:
        cached = make(output_type)
        setattr(output_type, attribute, cached)
    return cached


def _make_layout(output_type: type[Output]) -> OutputLayout:
    tensors: set[str] = set()
    tensor_streams: set[str] = set()
    streams: dict[str, TypeAdapter[Any]] = {}
    values: dict[str, TypeAdapter[Any]] = {}
    for name, field in output_type.model_fields.items():
        annotation: Any = field.annotation
        if annotation is Tensor:
            tensors.add(name)
        elif annotation is TensorStream:
            tensor_streams.add(name)
        elif get_origin(annotation) is Stream:
            streams[name] = TypeAdapter(get_args(annotation)[0])
        elif _contains_reference(annotation):
            raise DefinitionError(
                f"{output_type.__name__}.{name} is {annotation}: "
                "an output's Tensor, TensorStream or Stream[T] must be a separate field"
            )
        else:
            values[name] = TypeAdapter(annotation)
    return OutputLayout(frozenset(tensors), frozenset(tensor_streams), streams, values)


def _contains_reference(annotation: Any) -> bool:
    return annotation in (Tensor, TensorStream, Stream) or any(
        _contains_reference(argument) for argument in get_args(annotation)
    )


_READ_VALUE = "read value"
"""The key of the `ReadValue` among the stored fields of a pending output: not the name of a field."""


def pending_output(
    output_type: type[OutputT], references: Mapping[str, TensorReference | Stream[Any]], read_value: ReadValue
) -> OutputT:
    """Returns an output that contains `references` and calls `read_value` for every other field."""
    output: OutputT = object.__new__(_cached_in_type(output_type, _PENDING_TYPE, _make_pending_type))
    stored_fields(output).update({**references, _READ_VALUE: read_value})
    return output


def references_of(output: Output) -> dict[str, Any]:
    """Returns the tensors and streams of a pending output."""
    return {name: value for name, value in stored_fields(output).items() if name != _READ_VALUE}


def complete_output(output: Output, fields: Mapping[str, Any]) -> None:
    """Makes a pending output an ordinary one.

    Args:
        fields: all fields in the order of their type. The references in a pending output replace those in them.
    """
    stored = stored_fields(output)
    if stored.pop(_READ_VALUE, None) is None:
        return  # It is complete.
    complete = {**fields, **stored}
    stored.clear()
    stored.update(complete)
    object.__setattr__(output, "__class__", type(output).__mro__[1])
    object.__setattr__(output, "__pydantic_fields_set__", set(complete))
    object.__setattr__(output, "__pydantic_extra__", None)
    object.__setattr__(output, "__pydantic_private__", None)


def release_output(output: Output) -> None:
    """Makes every use of an output, pending or complete, and of its references raise `ReleasedOutputError`."""
    fields = stored_fields(output)
    is_pending = _READ_VALUE in fields
    for reference in fields.values():
        if isinstance(reference, TensorReference | Stream):
            reference.release()
    fields.clear()
    output_type = type(output)
    if is_pending:
        fields[_READ_VALUE] = lambda _: _fail_released(output_type)
    else:
        object.__setattr__(output, "__class__", _cached_in_type(output_type, _RELEASED_TYPE, _make_released_type))


def _fail_released(output_type: type[Output]) -> Never:
    raise ReleasedOutputError(f"an output of the type {output_type.__name__}")


def _make_released_type(output_type: type[Output]) -> type[Output]:
    def fail(output: Any) -> Never:
        _fail_released(output_type)

    fields = {name: property(fail) for name in output_type.model_fields}
    return lazy_subclass(output_type, fields=fields, all_fields=fail, slots=[], attributes={})


def with_streams(output: OutputT, **streams: Stream[Any]) -> OutputT:
    """Returns an output with other streams and the same values, which are still only awaited when they are read.

    A composite task can thereby return the stream of one unit task with the values of another.

    Raises:
        TypeError: the output does not have a stream of this name.
    """
    stored = stored_fields(output)
    read_value: ReadValue | None = stored.get(_READ_VALUE)
    output_type: type[Any] = type(output) if read_value is None else type(output).__mro__[1]
    unknown = streams.keys() - output_layout(output_type).streams.keys()
    if unknown:
        raise TypeError(f"{output_type.__name__} does not have the stream {', '.join(sorted(unknown))}")
    if read_value is None:
        return output.model_copy(update=streams)
    copy: OutputT = pending_output(output_type, stored | streams, read_value)
    return copy


def _make_pending_type(output_type: type[Output]) -> type[Output]:
    def all_fields(self: Any) -> dict[str, Any]:
        _wait_for_all(self)
        return stored_fields(self)

    def fields_set(self: Any) -> set[str]:
        _wait_for_all(self)
        found: set[str] = self.__pydantic_fields_set__  # The output is complete now.
        return found

    # pydantic determines the type of the output before it reads the fields. The output then has another type.

    def model_dump_json(self: Any, **options: Any) -> str:
        # pydantic would also wrap the suspension, or the invocation's error, in a ValidationError.
        _wait_for_all(self)
        return output_type.model_dump_json(self, **options)

    def __copy__(self: Any) -> Any:
        _wait_for_all(self)
        return output_type.__copy__(self)

    def __deepcopy__(self: Any, memo: dict[int, Any] | None = None) -> Any:
        _wait_for_all(self)
        return output_type.__deepcopy__(self, memo)

    def __eq__(self: Any, other: object) -> bool:
        _wait_for_all(self)
        if isinstance(other, Output):
            vars(other)  # It may be pending, too.
        return bool(self == other)

    return lazy_subclass(
        output_type,
        fields={name: _pending_field(name) for name in output_type.model_fields},
        all_fields=all_fields,
        slots=[],
        attributes={
            "__pydantic_fields_set__": property(fields_set),
            "__copy__": __copy__,
            "__deepcopy__": __deepcopy__,
            "__eq__": __eq__,
            "__hash__": output_type.__hash__,
            "model_dump_json": model_dump_json,
        },
    )


def _wait_for_all(output: Any) -> None:
    """Completes a pending output. Raises if a value is not available."""
    read_value: ReadValue | None = stored_fields(output).get(_READ_VALUE)
    if read_value is not None:
        complete_output(output, read_value(None))


def _pending_field(name: str) -> property:
    def read(self: Any) -> Any:
        values = stored_fields(self)
        return values[name] if name in values else values[_READ_VALUE](name)

    return property(read)

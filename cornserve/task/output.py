"""Outputs of unit tasks, before and after they exist.

Recording hands out a *pending* output: an instance of a subclass of the task's output type that already holds
its tensors and streams, and suspends the recording when anything else is read. So user code sees a reference or
a plain value, and never a proxy of a value. Reading `__dict__` or its like counts as reading everything, because
that is how pydantic itself gets at a model's values (`model_dump`, `==`, `repr`, copies).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter

from cornserve.task.errors import DefinitionError
from cornserve.task.references import Stream, Tensor

OutputT = TypeVar("OutputT", bound="Output")

Demand = Callable[[str | None], Any]
"""Called with the field that is read (None: all of them); returns its value or does not return."""


class Output(BaseModel):
    """Base of unit tasks' outputs. References are fields of their own, not inside lists or other models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def values_json(self) -> bytes:
        """The values as a JSON object: what an executor sends when the invocation ends."""
        return self.__pydantic_serializer__.to_json(self, include=set(layout_of(type(self)).values))


_LAYOUT = "__cornserve_layout__"
_PENDING = "__cornserve_pending__"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which fields of an output type are tensors, streams (with their items' type) and values."""

    tensors: frozenset[str]
    streams: Mapping[str, TypeAdapter[Any]]
    values: Mapping[str, TypeAdapter[Any]]


def layout_of(output_type: type[Output]) -> Layout:
    """Raises `DefinitionError` where a reference hides inside another type."""
    layout: Layout = _once(output_type, _LAYOUT, _layout)
    return layout


def _once(output_type: type[Output], name: str, make: Callable[[type[Output]], Any]) -> Any:
    """What has been made of the type is kept with it, and goes when the app goes that defines it."""
    made = output_type.__dict__.get(name)
    if made is None:
        made = make(output_type)
        setattr(output_type, name, made)
    return made


def _layout(output_type: type[Output]) -> Layout:
    tensors: set[str] = set()
    streams: dict[str, TypeAdapter[Any]] = {}
    values: dict[str, TypeAdapter[Any]] = {}
    for name, field in output_type.model_fields.items():
        annotation: Any = field.annotation
        if annotation is Tensor:
            tensors.add(name)
        elif get_origin(annotation) is Stream:
            streams[name] = TypeAdapter(get_args(annotation)[0])
        elif _mentions_reference(annotation):
            raise DefinitionError(
                f"{output_type.__name__}.{name} is {annotation}: "
                "an output's Tensor or Stream[T] must be a field of its own"
            )
        else:
            values[name] = TypeAdapter(annotation)
    return Layout(frozenset(tensors), streams, values)


def _mentions_reference(annotation: Any) -> bool:
    return annotation in (Tensor, Stream) or any(_mentions_reference(arg) for arg in get_args(annotation))


held: Callable[[BaseModel], dict[str, Any]] = vars(BaseModel)["__dict__"].__get__
"""What an output holds already, be it pending: without a demand, as pydantic's own slot has it."""


def pending(output_type: type[OutputT], references: Mapping[str, Tensor | Stream[Any]], demand: Demand) -> OutputT:
    """An output that holds `references` and asks `demand` for everything else."""
    output: OutputT = object.__new__(_once(output_type, _PENDING, _pending_type))
    held(output).update(references)
    object.__setattr__(output, "_demand", demand)
    return output


def _pending_type(output_type: type[Output]) -> type[Output]:
    """Its values are properties, and so is what holds all of them."""

    def model_dump_json(self: Any, **options: Any) -> str:
        # pydantic would hide the suspension, and the invocation's error, behind an error of its own.
        self._demand(None)
        return output_type.model_dump_json(self, **options)

    namespace = {
        "__dict__": _whole(held),
        "__pydantic_fields_set__": _whole(lambda output: frozenset[str]()),
        "__pydantic_extra__": None,  # what pydantic looks at to tell which attributes are missing
        "__pydantic_private__": None,
        "model_dump_json": model_dump_json,
        "__slots__": ("_demand",),
        "__module__": output_type.__module__,
    }
    metaclass: Any = type(output_type)
    pending_type: type[Output] = metaclass(output_type.__name__, (output_type,), namespace)
    for name in layout_of(output_type).values:
        type.__setattr__(pending_type, name, _value(name))
    return pending_type


def _whole(get: Callable[[Any], Any]) -> property:
    """What pydantic and the standard library look at when they want all of a model."""

    def read(self: Any) -> Any:
        self._demand(None)
        return get(self)

    return property(read)


def _value(name: str) -> property:
    def read(self: Any) -> Any:
        values = held(self)
        return values[name] if name in values else self._demand(name)

    return property(read)

"""Compares annotations by the classes of the values that they allow."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from inspect import signature
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from cornserve.task.errors import DefinitionError
from cornserve.task.references import Blob, Stream, TensorReference

_NUMBERS: dict[Any, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}
"""The classes of the numbers that the annotations float and complex allow [PEP 484]."""


def union_members(annotation: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the only type."""
    if get_origin(annotation) is Annotated:
        return union_members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(member for argument in get_args(annotation) for member in union_members(argument))
    return (annotation,)


def classes_of(annotation: Any) -> tuple[type, ...]:
    """Returns the classes of the values that an annotation allows. Empty if it does not determine them."""
    return _classes(union_members(annotation))


def check_annotations(task: str, invoke: Callable[..., Any], request_type: Any, response_type: Any) -> None:
    """Raises `DefinitionError` if an annotation of a task's `invoke` contradicts the type arguments of the task.

    Missing annotations do not, and neither do those that Python cannot resolve or compare. Those of a function that a
    decorator wraps are not checked: the decorator may pass other arguments.
    """
    if hasattr(invoke, "__wrapped__"):
        return
    try:
        annotations = get_type_hints(invoke)
        first, *parameters = signature(invoke).parameters.values()
    except Exception:  # The app may define names later or only for type checkers, and annotations of any kind.
        return
    if not parameters and first.kind is not first.VAR_POSITIONAL:
        raise DefinitionError(f"{task}.invoke takes no request: define it as `def invoke(self, request)`")
    requests, responses = _plain(classes_of(request_type)), _plain(classes_of(response_type))
    for parameter in [parameter.name for parameter in parameters[:1]]:
        taken = _plain(classes_of(annotations.get(parameter, Any)))
        if taken and not all(issubclass(request, taken) for request in requests):
            _refuse(task, f"{parameter}: {_text(annotations[parameter])}", "request", requests)
    returned = _plain(_classes(_response_members(annotations.get("return", Any))))
    if responses and not all(_can_be_returned(kind, responses) for kind in returned):
        _refuse(task, f"-> {_text(annotations['return'])}", "response", responses)


def _refuse(task: str, annotation: str, role: str, expected: Iterable[type]) -> None:
    names = " or ".join(kind.__name__ for kind in expected)
    raise DefinitionError(
        f"{task}.invoke has the annotation `{annotation}`, but the {role} type of the task is {names}: correct one of "
        "them"
    )


def _response_members(annotation: Any) -> Iterator[Any]:
    """Yields the members of a return annotation, or those of the value that a generator returns at its end."""
    for member in union_members(annotation):
        match get_args(member):
            case (_, _, response) if get_origin(member) is Generator:
                yield from union_members(response)
            case _:
                yield member


def _can_be_returned(kind: type, responses: tuple[type, ...]) -> bool:
    """Returns whether a value of the class can be a response, or a generator that returns one."""
    return issubclass(kind, responses) or any(issubclass(other, kind) for other in (*responses, Generator))


def _classes(members: Iterable[Any]) -> tuple[type, ...]:
    kinds = [get_origin(member) or member for member in members]
    if not all(map(_is_comparable, kinds)):
        return ()
    return tuple(dict.fromkeys(allowed for kind in kinds for allowed in _NUMBERS.get(kind, (kind,))))


def _is_comparable(kind: Any) -> bool:
    """Returns whether the values are the instances of the class.

    Those of a `TypedDict` are not, and neither are those of a class with a schema for values of another class, such as
    pydantic's `AwareDatetime`.
    """
    try:
        isinstance(None, kind)
        issubclass(NoneType, kind)
    except TypeError:
        return False
    return issubclass(kind, BaseModel | TensorReference | Stream | Blob) or not hasattr(
        kind, "__get_pydantic_core_schema__"
    )


def _plain(kinds: Iterable[type]) -> tuple[type, ...]:
    """Returns the classes without their type arguments, which are not compared."""
    return tuple(getattr(kind, "__pydantic_generic_metadata__", {}).get("origin") or kind for kind in kinds)


def _text(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)

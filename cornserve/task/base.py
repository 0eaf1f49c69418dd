"""Composite tasks: models described as plain Python [C §5.1]."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr

from cornserve.task.errors import DefinitionError

if TYPE_CHECKING:
    from cornserve.task.unit import UnitTask

Request = TypeVar("Request")
Response = TypeVar("Response")


class Task(BaseModel, Generic[Request, Response]):
    """A piece of a model's computation that is called with a request and gives a response.

    A subclass declares its settings as fields, builds the tasks it calls in `post_init`, and calls them in
    `invoke`, which is synchronous, quick and without side effects: Cornserve runs it several times per request,
    first to record which unit tasks it calls, then again with what they returned.

        class Summarise(Task[ChatRequest, ChatResponse]):
            model_id: str

            def post_init(self) -> None:
                self.llm = LLMTask(model_id=self.model_id)

            def invoke(self, request: ChatRequest) -> ChatResponse:
                return self.llm.invoke(request)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    request_type: ClassVar[Any] = None
    response_type: ClassVar[Any] = None

    _built: bool = PrivateAttr(default=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        arguments = cls.__pydantic_generic_metadata__["args"]
        if len(arguments) == 2:
            cls.request_type, cls.response_type = arguments

    @classmethod
    def request_types(cls) -> tuple[Any, ...]:
        """The types of which a request is one."""
        return _alternatives(cls.request_type)

    @property
    def name(self) -> str:
        return type(self).__name__

    def post_init(self) -> None:
        """Builds the tasks that `invoke` calls, as attributes; raises ValueError for settings that do not fit."""

    def invoke(self, request: Request) -> Response:
        """The computation. May be run several times for one request."""
        raise NotImplementedError(f"{self.name} does not define invoke")

    def model_post_init(self, context: Any, /) -> None:
        self.post_init()
        self._built = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__private_attributes__:
            super().__setattr__(name, value)
        elif self._built:
            raise AttributeError(
                f"{self.name}.{name} cannot be set: a task is built in post_init, and invoke has no side effects"
            )
        else:
            object.__setattr__(self, name, value)

    def parts(self) -> Iterator[Task[Any, Any]]:
        """The tasks that this one holds in its attributes, also inside lists, tuples and dicts."""
        return _tasks_in(list(self.__dict__.values()))

    def unit_tasks(self) -> Iterator[UnitTask[Any, Any]]:
        """The unit tasks that `invoke` may reach."""
        for part in self.parts():
            yield from part.unit_tasks()


def _tasks_in(value: Any) -> Iterator[Task[Any, Any]]:
    match value:
        case Task():
            yield value
        case list() | tuple():
            for item in value:
                yield from _tasks_in(item)
        case dict():
            yield from _tasks_in(list(value.values()))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, however they are annotated."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(one for member in get_args(annotation) for one in _alternatives(member))
    return (annotation,)


def require_types(task: type[Task[Any, Any]]) -> None:
    """Raises `DefinitionError` for a task class that does not say what it takes and gives."""
    if task.request_type is None or isinstance(task.request_type, TypeVar):
        raise DefinitionError(
            f"{task.__name__} must derive from Task[RequestType, ResponseType] or UnitTask[RequestType, OutputType]"
        )

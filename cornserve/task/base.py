"""Composite tasks: models described as plain Python [C §5.1]."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property
from inspect import isasyncgenfunction, iscoroutinefunction
from itertools import product, takewhile
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from cornserve.task.active_recording import active_recording
from cornserve.task.annotations import check_annotations, classes_of, union_members
from cornserve.task.errors import DefinitionError, ResponseTypeError

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_NESTING = 50
"""Maximum number of tasks that build each other. Python's stack holds about 200."""

_REPLACED_BY_POST_INIT = ("__init__", "__new__", "__post_init__")
"""Methods of other kinds of classes that build an object."""

_building: ContextVar[tuple[Task[Any, Any], ...]] = ContextVar("_building", default=())
"""The tasks whose `post_init` runs, each built by the one before it."""


class Task(BaseModel, Generic[Request, Response]):
    """A part of a model's computation that takes a request and returns a response.

    A subclass declares its settings as fields, builds the tasks that it calls in `post_init`, and calls them in
    `invoke`. `invoke` must be synchronous, fast and free of side effects: Cornserve records which unit tasks it calls,
    and may run it again with their outputs.

        class Summarize(Task[ChatRequest, ChatResponse]):
            model_id: str

            def post_init(self) -> None:
                self.llm = LLMTask(model_id=self.model_id)

            def invoke(self, request: ChatRequest) -> ChatResponse:
                return self.llm.invoke(request)

    `invoke` can be a generator that returns the response. Clients that stream receive what it yields at once: values,
    and streams of unit tasks.
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
        if iscoroutinefunction(cls.invoke) or isasyncgenfunction(cls.invoke):
            raise DefinitionError(
                f"{cls.__name__}.invoke is `async def`: define it with `def`; unit tasks that do not need outputs of "
                "each other run concurrently"
            )
        for method, base in product(_REPLACED_BY_POST_INIT, takewhile(lambda base: base is not Task, cls.__mro__)):
            if method in vars(base):
                inherits = f"{cls.__name__} inherits from {base.__name__}, which" if base is not cls else cls.__name__
                raise DefinitionError(
                    f"{inherits} defines {method}: declare its settings as fields, and build its tasks in post_init"
                )
        check_annotations(cls.__name__, cls.invoke, cls.request_type, cls.response_type)

    @classmethod
    def request_types(cls) -> tuple[Any, ...]:
        """Returns the types that a request can have: the members of a union, or the only type."""
        return union_members(cls.request_type)

    @property
    def name(self) -> str:
        return type(self).__name__

    def post_init(self) -> None:
        """Builds the tasks that `invoke` calls, as attributes. Raises ValueError for invalid settings."""

    def invoke(self, request: Request) -> Response | Generator[Any, None, Response]:
        """Computes the response. May run several times for one request."""
        raise NotImplementedError

    def respond(self, request: Request) -> Response:
        """Returns what `invoke` returns. Raises `ResponseTypeError` if it is not of the task's response type."""
        response: Response = run_to_end(self.invoke(request))
        if self._response_classes and not isinstance(response, self._response_classes):
            raise ResponseTypeError(self.name, response, self._response_classes)
        return response

    @cached_property
    def _response_classes(self) -> tuple[type, ...]:
        """The classes of responses. Empty if the response type does not determine them."""
        return classes_of(self.response_type)

    def model_post_init(self, context: Any, /) -> None:
        outer = _building.get()
        _check_nesting(outer, self)
        token = _building.set((*outer, self))
        try:
            self.post_init()
        finally:
            _building.reset(token)
        _check_attributes(self)
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

    def subtasks(self) -> Iterator[Task[Any, Any]]:
        """Yields the tasks in this task's attributes, and in lists, tuples and dicts there."""
        return _tasks_in(list(self.__dict__.values()))

    @cached_property
    def model_prefixes(self) -> Mapping[str, str]:
        """The prefix that names of components get for each model, by the field `model_id` of unit tasks.

        Prefixes keep the components of several models apart. Empty if the task runs at most one model.
        """
        models = sorted(_model_ids(self))
        if len(models) < 2:
            return {}
        short = [model.rstrip("/").rpartition("/")[2] for model in models]
        names = short if len(set(short)) == len(short) else models
        return {model: f"{name}/" for model, name in zip(models, names, strict=True)}


def run_to_end(response: Any) -> Any:
    """Returns what an `invoke` returns. If it is a generator, records what it yields."""
    if not isinstance(response, Generator):
        return response
    recording = active_recording.get(None)
    while True:
        try:
            value = next(response)
        except StopIteration as end:
            return end.value
        if recording is not None:
            recording.record_yield(value)


def _check_nesting(outer: tuple[Task[Any, Any], ...], task: Task[Any, Any]) -> None:
    """Raises `DefinitionError` if the task would build itself without end.

    Args:
        outer: the tasks that build this one, the outermost one first.
    """
    same = [number for number, other in enumerate(outer) if type(other) is type(task)]
    if any(_settings(outer[number]) == _settings(task) for number in same) or len(outer) >= MAX_NESTING:
        cycle = outer[same[-1] :] if same else outer
        names = " → ".join(other.name for other in (*cycle, task))
        raise DefinitionError(f"post_init builds tasks without end: {names}: build each task once")


def _check_attributes(task: Task[Any, Any]) -> None:
    """Raises `DefinitionError` if the task is an attribute of itself, or of its subtasks at any depth."""
    pending: list[tuple[Task[Any, Any], ...]] = [(task,)]
    seen: set[int] = set()
    while pending:
        path = pending.pop()
        for subtask in path[-1].subtasks():
            if subtask is task:
                names = " → ".join(other.name for other in (*path, task))
                raise DefinitionError(f"a task contains itself: {names}: remove the attribute")
            if id(subtask) not in seen:
                seen.add(id(subtask))
                pending.append((*path, subtask))


def _settings(task: Task[Any, Any]) -> dict[str, Any]:
    return {name: getattr(task, name) for name in type(task).model_fields}


def _model_ids(task: Task[Any, Any]) -> set[str]:
    subtasks = list(task.subtasks())
    if subtasks:
        return set().union(*map(_model_ids, subtasks))
    model = getattr(task, "model_id", None)
    return {model} if isinstance(model, str) else set()


def _tasks_in(value: Any) -> Iterator[Task[Any, Any]]:
    match value:
        case Task():
            yield value
        case list() | tuple():
            for item in value:
                yield from _tasks_in(item)
        case dict():
            yield from _tasks_in(list(value.values()))


def require_invoke(task: Task[Any, Any]) -> None:
    """Raises `DefinitionError` for a task without `invoke`, and for one that builds such a task."""
    if type(task).invoke is Task.invoke:
        raise DefinitionError(f"{task.name} does not define invoke: define it, with the calls of its tasks")
    for subtask in task.subtasks():
        require_invoke(subtask)


def require_types(task: type[Task[Any, Any]]) -> None:
    """Raises `DefinitionError` for a task class without a request and a response type."""
    if task.request_type is None or isinstance(task.request_type, TypeVar):
        raise DefinitionError(
            f"{task.__name__} must derive from Task[RequestType, ResponseType] or UnitTask[RequestType, OutputType]"
        )

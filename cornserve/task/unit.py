"""Unit tasks: the tasks that executors run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, TypeAdapter

from cornserve.task.active_recording import require_active_recording
from cornserve.task.base import Task
from cornserve.task.errors import DefinitionError
from cornserve.task.output import Output, OutputLayout, output_layout
from cornserve.task.references import Blob, Origin, ReferenceDecoder, ReferenceEncoder
from cornserve.task.spec import ExecutorSpec
from cornserve_policies.input_size import UNKNOWN_SIZE, InputSize

Input = TypeVar("Input", bound=BaseModel)
OutputT = TypeVar("OutputT", bound=Output)


class UnitTask(Task[Input, OutputT]):
    """A task that one executor runs. Its fields are the settings of that executor.

        class Embed(UnitTask[Text, Embedding]):
            executor = "embedder"
            model_id: str

    `executor` is the name of an entry point in the group `cornserve.executors`.
    """

    executor: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if isinstance(cls.response_type, type):
            if not issubclass(cls.response_type, Output):
                raise DefinitionError(
                    f"{cls.__name__} must return a cornserve.Output, not {cls.response_type.__name__}"
                )
            output_layout(cls.response_type)

    @cached_property
    def output_type(self) -> type[Output]:
        output_type: type[Output] = self.response_type
        return output_type

    @cached_property
    def layout(self) -> OutputLayout:
        """The layout of the task's output type."""
        return output_layout(self.output_type)

    def components(self, request: Input) -> frozenset[str]:
        """Returns the components of the model that run for this input, by which requests are classified [C §4.1].

        A colon names a part of a component: tasks that together replace one of `llm` may run `llm:prefill` and
        `llm:decode`.
        """
        return frozenset({self.executor})

    def size(self, request: Input) -> InputSize:
        """Returns the size of an input, by which replicas and times are estimated. It must take microseconds."""
        return UNKNOWN_SIZE

    def executor_spec(self) -> ExecutorSpec:
        """Returns the specification of the executor that serves this task. Tasks with equal specs share executors."""
        return ExecutorSpec(executor=self.executor, config=self.model_dump(mode="json"))

    @cached_property
    def input_types(self) -> tuple[type[BaseModel], ...]:
        return self.request_types()

    @cached_property
    def request_adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.request_type)

    @cached_property
    def spec(self) -> ExecutorSpec:
        return self.executor_spec().model_copy(update={"has_tensors": self.layout.has_tensors})

    @cached_property
    def key(self) -> str:
        return self.spec.key

    def encode(self, request: Input, encoder: ReferenceEncoder) -> bytes:
        """Returns the request as JSON for the executor.

        Moves its references and blobs to `encoder.inputs`; the JSON contains `{"$input": n}` for the n-th of them.
        """
        for input_type in self.input_types:
            if isinstance(request, input_type):
                return input_type.__pydantic_serializer__.to_json(request, context=encoder, exclude_defaults=True)
        expected = " or ".join(input_type.__name__ for input_type in self.input_types)
        raise TypeError(f"{self.name} takes the type {expected}, not {type(request).__name__}")

    def decode(self, body: bytes, inputs: Sequence[Origin | Blob] = ()) -> Input:
        """Returns the request that `encode` turned into `body` and `inputs`."""
        decoder = ReferenceDecoder(inputs)
        request: Input = self.request_adapter.validate_json(body, context=decoder)
        return request

    def input_source(self) -> UnitTask[Any, Any]:
        """Returns a task that publishes tensors of the same shapes without the work, and needs no GPU.

        Profiles of the options that consume the tensors use it in place of this task. Raises `DefinitionError` if
        the task has no source.
        """
        raise DefinitionError(
            f"{self.name} has no input source, so its consumers cannot be measured alone: define input_source"
        )

    def continues(self, request: Input) -> bool:
        """Returns whether another executor can continue this request's streams exactly after an executor dies.

        It must also produce streams of tensors again, from their first tensor. The executor must have `continues` set
        as well. By default, streams that have started end with an error.
        """
        return False

    def invoke(self, request: Input) -> OutputT:
        """Records an invocation and returns its pending output; in a replay, returns the recorded output."""
        output: OutputT = require_active_recording(f"{self.name} was invoked").invoke(self, request)
        return output


def unit_tasks(task: Task[Any, Any]) -> Iterator[UnitTask[Any, Any]]:
    """Yields the unit tasks that `task.invoke` may call: the task itself, or those of its subtasks."""
    if isinstance(task, UnitTask):
        yield task
    else:
        for subtask in task.subtasks():
            yield from unit_tasks(subtask)

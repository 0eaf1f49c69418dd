"""Unit tasks: the smallest thing that is invoked remotely (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, TypeAdapter

from cornserve.task.base import Task
from cornserve.task.errors import DefinitionError
from cornserve.task.output import Layout, Output, layout_of
from cornserve.task.recording import current
from cornserve.task.references import Blob, Origin, ReferenceDecoder, ReferenceEncoder, Tensor
from cornserve.task.spec import ExecutorSpec

Input = TypeVar("Input", bound=BaseModel)
Result = TypeVar("Result", bound=Output)


class UnitTask(Task[Input, Result]):
    """A task that one executor runs. Its fields are the settings of that executor.

        class Embed(UnitTask[Text, Embedding]):
            executor = "embedder"
            model_id: str

    `executor` names an entry point of the group `cornserve.executors`.
    """

    executor: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if isinstance(cls.response_type, type):
            if not issubclass(cls.response_type, Output):
                raise DefinitionError(f"{cls.__name__} must give a cornserve.Output, not {cls.response_type.__name__}")
            layout_of(cls.response_type)

    @cached_property
    def output_type(self) -> type[Output]:
        output_type: type[Output] = self.response_type
        return output_type

    @cached_property
    def layout(self) -> Layout:
        """Of its output."""
        return layout_of(self.output_type)

    def components(self, request: Input) -> frozenset[str]:
        """The components of the model that run for this input; requests are classified by them [C §4.1]."""
        return frozenset({self.executor})

    def executor_spec(self) -> ExecutorSpec:
        """What has to run to serve this task. Tasks with equal specs share executors."""
        return ExecutorSpec(executor=self.executor, config=self.model_dump(mode="json"))

    @cached_property
    def input_types(self) -> tuple[type[BaseModel], ...]:
        return self.request_types()

    @cached_property
    def request_adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.request_type)

    @cached_property
    def spec(self) -> ExecutorSpec:
        return self.executor_spec()

    @cached_property
    def key(self) -> str:
        return self.spec.key

    def encode(self, request: Input, edges: ReferenceEncoder) -> bytes:
        """The executor's call: JSON, in which what travels beside it stands as `{"$input": n}` and is lifted
        into `edges`."""
        for input_type in self.input_types:
            if isinstance(request, input_type):
                return input_type.__pydantic_serializer__.to_json(request, context=edges, exclude_defaults=True)
        expected = " or ".join(input_type.__name__ for input_type in self.input_types)
        raise TypeError(f"{self.name} takes a {expected}, not a {type(request).__name__}")

    def decode(self, body: bytes, inputs: Sequence[Origin | Blob] = ()) -> Input:
        """The request again, from what `encode` has made of it."""
        given = ReferenceDecoder([one if isinstance(one, Blob) else Tensor(one) for one in inputs])
        request: Input = self.request_adapter.validate_json(body, context=given)
        return request

    def continues(self, request: Input) -> bool:
        """Whether, when an executor dies, another goes on exactly from what the streams have brought until then.

        The executor must be one that `continues`, too. By default, started streams end with an error.
        """
        return False

    def invoke(self, request: Input) -> Result:
        """Records the call, and gives its output once there is one."""
        result: Result = current(f"{self.name} was invoked").invoke(self, request)
        return result

    def unit_tasks(self) -> Iterator[UnitTask[Any, Any]]:
        yield self

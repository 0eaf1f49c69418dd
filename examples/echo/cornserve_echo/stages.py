"""A unit task with set service times, and a model of an encoder and a language model that consists of it.

Plans, routes and profiles can be checked exactly with them: a replica's throughput follows from the set times.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic import AllowInfNan, BaseModel, Field

from cornserve import App, ExecutorSpec, Output, Task, Tensor, UnitTask

Seconds = Annotated[float, Ge(0), AllowInfNan(False)]


class StageRequest(BaseModel):
    items: dict[str, Seconds]
    """The components to run, and how many times the set seconds each of them takes."""
    text: str = ""
    inputs: list[Tensor] = Field(default_factory=list)
    """Results of earlier stages."""


class StageResult(Output):
    result: Tensor = Tensor()
    """One byte, for later stages."""
    text: str
    """The text of the request."""
    seconds: float
    """The service time."""


class StageTask(UnitTask[StageRequest, StageResult]):
    """Runs components of a model, of which each takes a set time."""

    executor = "stage"

    seconds: dict[str, Seconds] = Field(min_length=1)
    """The service time of each component, for one item."""
    gpus: int = Field(default=1, ge=0)
    """GPUs of a replica."""
    concurrency: int = Field(default=1, ge=1)
    """The number of requests that a replica serves at a time."""

    def components(self, request: StageRequest) -> frozenset[str]:
        """Returns the request's components. Raises ValueError for a component without a set time."""
        if unknown := sorted(request.items.keys() - self.seconds.keys()):
            raise ValueError(f"unknown components {', '.join(unknown)}: choose from {', '.join(self.seconds)}")
        return frozenset(request.items)

    def executor_spec(self) -> ExecutorSpec:
        return ExecutorSpec(executor=self.executor, config=self.model_dump(mode="json"), gpus=self.gpus)

    def input_source(self) -> StageTask:
        return StageTask(seconds=dict.fromkeys(self.seconds, 0.0), gpus=0, concurrency=self.concurrency)

    def service_time(self, request: StageRequest) -> float:
        """Returns the seconds that a request takes. Raises ValueError for a component without a set time."""
        return sum(self.seconds[component] * request.items[component] for component in sorted(self.components(request)))


class CaptionRequest(BaseModel):
    text: str = ""
    images: int = Field(default=0, ge=0)
    """The number of images."""


class Caption(Task[CaptionRequest, StageResult]):
    """A language model `llm` that reads images, with or without a separate encoder.

    Without a separate encoder, the language model's executor encodes the images: its task then needs a service time of
    the component `encoder`, too.
    """

    llm: StageTask
    encoder: StageTask | None = None

    def invoke(self, request: CaptionRequest) -> StageResult:
        if self.encoder is None:
            encoder = {"encoder": float(request.images)} if request.images else {}
            return self.llm.invoke(StageRequest(items={**encoder, "llm": 1}, text=request.text))
        images = [self.encoder.invoke(StageRequest(items={"encoder": 1})).result for _ in range(request.images)]
        return self.llm.invoke(StageRequest(items={"llm": 1}, text=request.text, inputs=images))


def caption_app(
    name: str,
    *,
    encoder: float,
    llm: float,
    gpus: int = 1,
    concurrency: int = 1,
    shares: list[float] | None = None,
) -> App:
    """Returns an app with the paths `EL` (monolith), `E, L` and `E, EL`, in this order.

    The executor `EL` of the first and the last path is the same one.

    Args:
        encoder: seconds per image.
        llm: seconds per request.
        gpus: GPUs of each replica.
        concurrency: requests that a replica serves at a time.
        shares: the shares of the three paths; equal by default.
    """

    def stage(seconds: dict[str, float]) -> StageTask:
        return StageTask(seconds=seconds, gpus=gpus, concurrency=concurrency)

    monolith = stage({"encoder": encoder, "llm": llm})
    encode, generate = stage({"encoder": encoder}), stage({"llm": llm})
    paths = [Caption(llm=monolith), Caption(llm=generate, encoder=encode), Caption(llm=monolith, encoder=encode)]
    return App(name=name, paths=[*paths], shares=shares, probes=[CaptionRequest(), CaptionRequest(images=1)])

"""Classifiers, which assign texts to the classes of a model."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic import BaseModel, ConfigDict

from cornserve.task import Output, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.embedding import Inputs
from cornserve_tasklib.engine import EngineOptions, EngineSettings
from cornserve_tasklib.sampling_fields import STRICT, estimate_tokens


class ClassificationRequest(BaseModel):
    """Texts to classify."""

    model_config = STRICT | ConfigDict(frozen=True)

    input: Inputs
    """Texts, or lists of token ids."""
    truncate_prompt_tokens: Annotated[int, Ge(-1)] | None = None
    """Truncates each text to this number of tokens; -1 stands for the model's context length. By default, a text that
    exceeds the context length is an error."""
    use_activation: bool | None = None
    """Whether the model's activation function, usually the softmax, is applied to the values. Defaults to true."""

    @property
    def size(self) -> InputSize:
        """The size, of which the tokens of texts are estimated."""
        return InputSize(text=sum(map(estimate_tokens, self.input)), items=len(self.input))


class ClassificationResponse(Output):
    """The classes of the inputs of a `ClassificationRequest`."""

    probs: list[list[float]]
    """The probability of each class, for each input in order. Without activation, the values of the model."""
    labels: list[str | None]
    """The name of the most likely class of each input, if the model has names."""
    prompt_tokens: int
    """The number of tokens of all inputs."""


class ClassificationTask(EngineSettings, UnitTask[ClassificationRequest, ClassificationResponse]):
    """Runs a classifier on vLLM."""

    executor = "classification"

    def size(self, request: ClassificationRequest) -> InputSize:
        return request.size

    def post_init(self) -> None:
        if self.options.lora_modules:
            raise ValueError("lora_modules: a classifier has no LoRA adapters: remove the option")


class Classify(Task[ClassificationRequest, ClassificationResponse]):
    """Classifies texts with one model."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `ClassificationTask.revision`."""
    options: EngineOptions = EngineOptions()
    """Options of the engine."""

    def post_init(self) -> None:
        self.classification = ClassificationTask(model_id=self.model_id, revision=self.revision, options=self.options)

    def invoke(self, request: ClassificationRequest) -> ClassificationResponse:
        return self.classification.invoke(request)

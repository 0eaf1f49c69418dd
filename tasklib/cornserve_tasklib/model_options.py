"""Options of the executors of a model that is deployed without Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError

from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.image_generation import ImageGeneratorOptions
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_summary import ModelSummary
from cornserve_tasklib.parsers import ReasoningParser, ToolParser
from cornserve_tasklib.text_to_speech import TextToSpeechOptions

Options = TypeVar("Options", bound=BaseModel)

ALL_ENGINES: Final = "*"
IMAGE_GENERATOR: Final = "image_generator"


class ChatOptions(BaseModel):
    """Options of a chat model that are fields of `LLMTask`, and not options of its engine."""

    tool_parser: ToolParser | None = None
    reasoning_parser: ReasoningParser | None = None
    chat_template: str | None = Field(default=None, min_length=1)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The revision of a model, its LoRA adapter, its image model, and the options of its executors and of media."""

    revision: str | None = None
    lora: str | None = None
    """See `LLMTask.lora`."""
    by_executor: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Options by the name of the executor. Those of `*` are for all engines of language and embedding models, unless
    the options of a named executor contain them, too."""
    media: MediaOptions = MediaOptions()  # noqa: RUF009 - it is frozen
    """See `Mllm.media_options`."""
    drawer: str | None = None
    """The image model of a `DrawingChat`: a Hugging Face id, or the absolute path of a model directory."""
    drawer_summary: ModelSummary | None = None
    """The facts in the files of the image model. By default, the files of a directory are read."""

    def check_executors(self, model: str, executors: Iterable[str]) -> None:
        """Raises `DefinitionError` if there are options for other executors than those of the model."""
        known = sorted({*executors, *(() if self.drawer is None else (IMAGE_GENERATOR,))})
        for name in self.by_executor:
            if name not in (ALL_ENGINES, *known):
                choices = ", ".join([*known, f"{ALL_ENGINES} for all"])
                raise DefinitionError(f"{model} has no executor {name!r}: choose from {choices}")

    def language_engine(self) -> EngineOptions:
        """Returns the options of the language model. Raises `DefinitionError` if they or the adapter are invalid."""
        options = self.engine("llm")
        if self.lora is not None:
            try:
                options.check_adapter(self.lora)
            except ValueError as error:
                raise DefinitionError(str(error)) from error
        return options

    def chat_options(self) -> dict[str, str | None]:
        """Returns the `ChatOptions` that are given. Raises `DefinitionError` if they are invalid."""
        return _validated(ChatOptions, self._of_engine("llm"), "llm").model_dump(exclude_unset=True)

    def engine(self, executor: str) -> EngineOptions:
        """Returns the options of an executor on vLLM. Raises `DefinitionError` if they are invalid."""
        ignored = ChatOptions.model_fields if executor == "llm" else ()
        options = {name: value for name, value in self._of_engine(executor).items() if name not in ignored}
        return _validated(EngineOptions, options, executor)

    def part(self, executor: str) -> EngineOptions:
        """Returns the options of an executor of a part of the language model, which precede those of `llm`. Raises
        `DefinitionError` if they are invalid."""
        whole = {name: value for name, value in self._of_engine("llm").items() if name not in ChatOptions.model_fields}
        return _validated(EngineOptions, {**whole, **self.by_executor.get(executor, {})}, executor)

    def _of_engine(self, executor: str) -> Mapping[str, JsonValue]:
        """Returns the options of an executor, which precede those of all."""
        return {**self.by_executor.get(ALL_ENGINES, {}), **self.by_executor.get(executor, {})}

    def named(self, executor: str, kind: type[Options]) -> Options:
        """Returns the options given for this executor by name. Raises `DefinitionError` if they are invalid."""
        return _validated(kind, self.by_executor.get(executor, {}), executor)

    def image_generator(self, executor: str) -> ImageGeneratorOptions:
        """Returns the options of an executor that generates or edits images. Raises `DefinitionError` if they are
        invalid."""
        return _validated(ImageGeneratorOptions, self._of_engine(executor), executor)

    def text_to_speech(self) -> TextToSpeechOptions:
        """Returns the options of the executor of a text-to-speech model. Raises `DefinitionError` if they are
        invalid."""
        return _validated(TextToSpeechOptions, self._of_engine("text_to_speech"), "text_to_speech")


def _validated(kind: type[Options], options: Mapping[str, JsonValue], executor: str) -> Options:
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        problems = describe_all(error.errors())
        raise DefinitionError(f"invalid options of the executor {executor!r}: {problems}") from error

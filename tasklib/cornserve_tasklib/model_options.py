"""Options of the executors of a model that is deployed without Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.image_generation import ImageGeneratorOptions
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.text_to_speech import TextToSpeechOptions

Options = TypeVar("Options", bound=BaseModel)

ALL_ENGINES: Final = "*"
IMAGE_GENERATOR: Final = "image_generator"


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

    def engine(self, executor: str) -> EngineOptions:
        """Returns the options of an executor on vLLM. Raises `DefinitionError` if they are invalid."""
        options = {**self.by_executor.get(ALL_ENGINES, {}), **self.by_executor.get(executor, {})}
        return _validated(EngineOptions, options, executor)

    def named(self, executor: str, kind: type[Options]) -> Options:
        """Returns the options given for this executor by name. Raises `DefinitionError` if they are invalid."""
        return _validated(kind, self.by_executor.get(executor, {}), executor)

    def image_generator(self, executor: str) -> ImageGeneratorOptions:
        """Returns the options of an executor that generates or edits images. Raises `DefinitionError` if they are
        invalid."""
        given = {**self.by_executor.get(ALL_ENGINES, {}), **self.by_executor.get(executor, {})}
        return _validated(ImageGeneratorOptions, given, executor)

    def text_to_speech(self) -> TextToSpeechOptions:
        """Returns the options of the executor of a text-to-speech model. Raises `DefinitionError` if they are
        invalid."""
        given = {**self.by_executor.get(ALL_ENGINES, {}), **self.by_executor.get("text_to_speech", {})}
        return _validated(TextToSpeechOptions, given, "text_to_speech")


def _validated(kind: type[Options], options: Mapping[str, JsonValue], executor: str) -> Options:
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        problems = describe_all(error.errors())
        raise DefinitionError(f"invalid options of the executor {executor!r}: {problems}") from error

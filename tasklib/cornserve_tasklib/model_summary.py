"""The facts in the config files of a model that decide how it is served."""

from __future__ import annotations

from collections.abc import Iterable
from json import loads
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cornserve.task.errors import DefinitionError
from cornserve_tasklib.encoder_families import MODEL_TYPES
from cornserve_tasklib.hub import MODEL_FILES, MODEL_INDEX
from cornserve_tasklib.vits_tokenizer import unsupported_reason

_ADAPTER = "adapter_config.json"

_OTHER_MODELS = {
    "cosyvoice.yaml": "a CosyVoice model",
    "cosyvoice2.yaml": "a CosyVoice model",
    "cosyvoice3.yaml": "a CosyVoice model",
    "open_clip_config.json": "a model of OpenCLIP",
}
"""Models that neither vLLM, transformers nor diffusers load, by the name of a file."""

_OTHER_WEIGHTS = {".gguf": "GGUF", ".onnx": "ONNX"}

CONFIG_FILES: Final = (
    *MODEL_FILES,
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    _ADAPTER,
    *_OTHER_MODELS,
)
"""The files that a summary is read from. None of them contains weights."""


class ModelSummary(BaseModel):
    """The facts in the config files of a model that decide its paths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architectures: list[str] = Field(default_factory=list, max_length=16)
    """The classes in its config.json, by vLLM's and transformers' names. Empty for a pipeline."""
    model_type: str | None = None
    """transformers' name of the type."""
    pipeline: str | None = None
    """The class of a pipeline of diffusers."""
    labels: int = 2
    """The labels of a classifier."""
    embeds: bool = False
    """Whether sentence-transformers uses it for embeddings."""
    speaks: bool = False
    """Whether it contains a talker."""
    has_own_code: bool = False
    """Whether its directory contains the code of its classes."""
    tool_parser: str | None = None
    """vLLM's name of the format of tool calls in its chat template."""
    tokenizer_problem: str = ""
    """Why the tokenizer of a text-to-speech model is not supported, or an empty text."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.pipeline is None and not self.architectures:
            raise ValueError("give the architectures of the model, or its pipeline")
        return self

    @property
    def kind(self) -> str:
        """The class of the model, for users."""
        return self.pipeline or ", ".join(self.architectures)


def summarize_architecture(name: str, *, speaks: bool = False) -> ModelSummary:
    """Returns the summary of a model of which only its architecture is known, and whether it contains a talker."""
    return ModelSummary(architectures=[name], model_type=MODEL_TYPES.get(name), speaks=speaks)


def summarize_directory(directory: Path) -> ModelSummary:
    """Returns the summary of a model that is complete in a directory. Raises `DefinitionError` like `summarize_files`,
    and if its weights have another format."""
    folders = (directory, directory / "onnx")
    check_weights(str(directory), (path.name for folder in folders for path in folder.glob("*")))
    return summarize_files(str(directory), directory)


def summarize_files(model: str, directory: Path) -> ModelSummary:
    """Returns the summary of a model. Raises `DefinitionError` if its files do not describe one.

    Args:
        model: its directory or id, for users.
        directory: contains its config files.
    """
    files = _Files(model, directory)
    if (index := files.json(MODEL_INDEX)) is not None:
        return ModelSummary(pipeline=str(index.get("_class_name")))
    config = files.json("config.json")
    if config is None:
        raise _without_config(model, directory, files)
    architectures = config.get("architectures")
    if not architectures and "istftnet" in config:
        raise _other_model(model, "a Kokoro model")
    if not isinstance(architectures, list) or not architectures:
        raise DefinitionError(
            f"{model}/config.json does not list architectures, but has {architectures!r}: give a model that vLLM, "
            "transformers or diffusers load"
        )
    return ModelSummary(
        architectures=[str(name) for name in architectures],
        model_type=config["model_type"] if isinstance(config.get("model_type"), str) else None,
        labels=_labels(config),
        embeds=files.text("modules.json") is not None,
        speaks=config.get("enable_audio_output") is True,
        has_own_code=bool(config.get("auto_map")),
        tool_parser=_tool_parser(files),
        tokenizer_problem=_tokenizer_problem(files) if "VitsModel" in architectures else "",
    )


def check_weights(model: str, names: Iterable[str]) -> None:
    """Raises `DefinitionError` if all weights have a format that vLLM, transformers and diffusers do not read.

    Args:
        model: its directory or id, for users.
        names: its files.
    """
    suffixes = {Path(name).suffix for name in names}
    if suffixes.isdisjoint([".safetensors", ".bin", ".pt", ".pth"]) and (found := suffixes & _OTHER_WEIGHTS.keys()):
        formats = " and ".join(_OTHER_WEIGHTS[suffix] for suffix in sorted(found))
        raise DefinitionError(
            f"{model} consists of {formats} files, which vLLM and transformers do not read: give the original weights, "
            "or another quantization (AWQ, GPTQ, FP8)"
        )


def _without_config(model: str, directory: Path, files: _Files) -> DefinitionError:
    """Returns the error for a model without a config.json, which names the kind of the model if a file shows it."""
    if (adapter := files.json(_ADAPTER)) is not None:
        base = adapter.get("base_model_name_or_path")
        return DefinitionError(
            f"{model} is a LoRA adapter{f' of {base}' if base else ''}, not a model: deploy its model with "
            f"""--option 'lora_modules={{"NAME": "DIRECTORY OF THE ADAPTER"}}' --lora NAME"""
        )
    if other := next((other for name, other in _OTHER_MODELS.items() if files.text(name) is not None), None):
        return _other_model(model, other)
    if not directory.is_dir():
        return files.unreadable("config.json", "No such file or directory")
    return DefinitionError(
        f"{model} is not a model: it contains no {' and no '.join(MODEL_FILES)}: give the directory of a model, or its "
        "Hugging Face id"
    )


def _other_model(model: str, other: str) -> DefinitionError:
    return DefinitionError(f"{model} is {other}: give a model that vLLM, transformers or diffusers load")


class _Files:
    """The files of a model."""

    def __init__(self, model: str, directory: Path) -> None:
        self._model = model
        self._directory = directory

    def text(self, name: str) -> str | None:
        """Returns the content of a file, or None if the model does not have it."""
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self.unreadable(name, getattr(error, "strerror", None) or error) from error

    def unreadable(self, name: str, reason: object) -> DefinitionError:
        return DefinitionError(
            f"{self._model} is not a model directory: cannot read its {name} ({reason}): give a directory that the "
            "gateway and the executors can read"
        )

    def json(self, name: str) -> dict[str, Any] | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            content = loads(text)
        except ValueError as error:
            raise DefinitionError(
                f"{self._model}/{name} is not a JSON object ({error}): download the model again"
            ) from error
        if not isinstance(content, dict):
            raise DefinitionError(f"{self._model}/{name} is not a JSON object: download the model again")
        return content


def _labels(config: dict[str, Any]) -> int:
    """Returns the number of labels of a classifier. transformers has two by default."""
    labels, number = config.get("id2label"), config.get("num_labels")
    if isinstance(labels, dict):
        return len(labels)
    return number if isinstance(number, int) else 2


_TOOL_CALL_FORMATS = {
    "hermes": r'{"name": <function-name>, "arguments": <args-json-object>}',
    "llama3_json": r'{"name": function name, "parameters": dictionary of argument name and its value}',
}
"""The format of tool calls in a chat template, by vLLM's parser."""


def _tool_parser(files: _Files) -> str | None:
    """Returns the parser of the model's tool calls, or None if the chat template does not contain a known format.

    The architecture does not determine the format.
    """
    template = _chat_template(files).replace('\\"', '"')
    return next((parser for parser, call in _TOOL_CALL_FORMATS.items() if call in template), None)


def _chat_template(files: _Files) -> str:
    try:
        if (template := files.text("chat_template.jinja")) is not None:
            return template
        settings = files.json("chat_template.json") or files.json("tokenizer_config.json") or {}
    except DefinitionError:
        return ""
    found = settings.get("chat_template")
    return found if isinstance(found, str) else ""


def _tokenizer_problem(files: _Files) -> str:
    settings = files.json("tokenizer_config.json")
    if settings is None:
        return "has no tokenizer_config.json: download the model again"
    return unsupported_reason(settings) or ""

"""Model families: derives the tasks that serve a model, so that deploying a known model requires no Python."""

from __future__ import annotations

import re
from json import loads
from pathlib import Path
from typing import Any

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.embedding import Embed
from cornserve_tasklib.hub import is_hub_id
from cornserve_tasklib.llm import Chat, Mllm
from cornserve_tasklib.model_options import ModelOptions

ModelPaths = dict[str, Task[Any, Any]]
"""Tasks by path name. The first one is the default."""

_MULTIMODAL = ("Qwen2_5_VLForConditionalGeneration", "InternVLForConditionalGeneration")
"""Architectures whose encoder can run in a separate executor."""

_SUPPORTED = (
    f"use a text model (…ForCausalLM), an embedding model (…Model), or a multimodal model ({', '.join(_MULTIMODAL)})"
)

_MULTIMODAL_IDS = re.compile(r"Qwen/Qwen2\.5-VL-.+|OpenGVLab/InternVL3-.+-hf")
"""Hugging Face ids of models with these architectures. InternVL 3 without -hf is another architecture, which requires
code from its repository."""


def default_paths(model: str, options: ModelOptions = ModelOptions()) -> ModelPaths:  # noqa: B008 - it is frozen
    """Returns the paths by which a model can be served.

    Args:
        model: a Hugging Face id, or the absolute path of a model directory. The files of a directory,
            or the name in an id, determine the family. An id of an unknown family is assumed to be a language model.
        options: for the executors of the paths.

    Raises:
        DefinitionError: the directory does not contain a model of a known family, or the options are invalid.
    """
    if not Path(model).is_absolute():
        if not is_hub_id(model):
            raise DefinitionError(
                f"{model!r} is neither an absolute path nor a Hugging Face id: give a model directory such as "
                "/models/qwen3, or an id NAME or OWNER/NAME"
            )
        return (_multimodal_paths if _MULTIMODAL_IDS.fullmatch(model) else _chat_path)(model, None, options)
    architectures = _architectures(Path(model))
    if _is_embedding_model(Path(model), architectures):
        return _embed_path(model, options)
    if any(name in _MULTIMODAL for name in architectures):
        return _multimodal_paths(model, _tool_parser(Path(model)), options)
    if any(name.endswith("ForCausalLM") for name in architectures):
        return _chat_path(model, _tool_parser(Path(model)), options)
    raise DefinitionError(f"unsupported architecture {', '.join(architectures)} of {model}: {_SUPPORTED}")


def _embed_path(model: str, options: ModelOptions) -> ModelPaths:
    options.check_executors(model, ["embedding"])
    engine = options.engine("embedding")
    if options.lora is not None or engine.lora_modules:
        raise DefinitionError(f"{model} is an embedding model, without LoRA adapters: remove lora and lora_modules")
    return {"embed": Embed(model_id=model, revision=options.revision, options=engine)}


def _chat_path(model: str, tool_parser: str | None, options: ModelOptions) -> ModelPaths:
    options.check_executors(model, ["llm"])
    chat = Chat(
        model_id=model,
        revision=options.revision,
        tool_parser=tool_parser,
        lora=options.lora,
        options=options.language_engine(),
    )
    return {"chat": chat}


def _multimodal_paths(model: str, tool_parser: str | None, options: ModelOptions) -> ModelPaths:
    options.check_executors(model, ["llm", "encoder"])
    engine, encoder = options.language_engine(), options.encoder()

    def path(*, split_encoder: bool, with_enc: bool) -> Mllm:
        return Mllm(
            model_id=model,
            revision=options.revision,
            split_encoder=split_encoder,
            with_enc=with_enc,
            tool_parser=tool_parser,
            lora=options.lora,
            options=engine,
            encoder_options=encoder,
        )

    return {
        "monolith": path(split_encoder=False, with_enc=True),
        "e-l": path(split_encoder=True, with_enc=False),
        "e-el": path(split_encoder=True, with_enc=True),
    }


def _is_embedding_model(directory: Path, architectures: list[str]) -> bool:
    """Detects a model without a head, or a language model with the `modules.json` of sentence-transformers."""
    return all(name.endswith("Model") for name in architectures) or (directory / "modules.json").is_file()


_TOOL_CALL_FORMATS = {
    "hermes": r'{"name": <function-name>, "arguments": <args-json-object>}',
    "llama3_json": r'{"name": function name, "parameters": dictionary of argument name and its value}',
}
"""The format of tool calls in a chat template, by vLLM's parser."""


def _tool_parser(directory: Path) -> str | None:
    """Returns the parser of the model's tool calls, or None if the chat template does not contain a known format.

    The architecture does not determine the format.
    """
    template = _chat_template(directory).replace('\\"', '"')
    return next((parser for parser, call in _TOOL_CALL_FORMATS.items() if call in template), None)


def _chat_template(directory: Path) -> str:
    try:
        return (directory / "chat_template.jinja").read_text()
    except OSError:
        pass
    try:
        template = loads((directory / "tokenizer_config.json").read_text()).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return ""
    return template if isinstance(template, str) else ""


def _architectures(directory: Path) -> list[str]:
    config = directory / "config.json"
    try:
        architectures = loads(config.read_text()).get("architectures")
    except OSError as error:
        raise DefinitionError(
            f"{directory} is not a model directory: cannot read its config.json ({error.strerror}): give a directory "
            "that the gateway and the executors can read"
        ) from error
    except (ValueError, AttributeError) as error:
        raise DefinitionError(f"{config} is not a JSON object ({error}): download the model again") from error
    if not isinstance(architectures, list) or not architectures:
        raise DefinitionError(f"{config} does not list architectures, but has {architectures!r}: {_SUPPORTED}")
    return [str(name) for name in architectures]

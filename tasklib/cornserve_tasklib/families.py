"""Model families: from a model to the app that serves it, so that deploying a known model needs no Python."""

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

Paths = dict[str, Task[Any, Any]]
"""By name. The first is what serves where nobody says otherwise."""

_MULTIMODAL = ("Qwen2_5_VLForConditionalGeneration", "InternVLForConditionalGeneration")
"""Architectures whose encoders can run apart from their language models."""

_MULTIMODAL_IDS = re.compile(r"Qwen/Qwen2\.5-VL-.+|OpenGVLab/InternVL3-.+-hf")
"""Models of these architectures as their makers publish them. InternVL 3 without -hf is another architecture: its
code comes with the model."""


def default_paths(model: str) -> Paths:
    """The paths by which a model can be served.

    Args:
        model: a Hugging Face id, or a directory. What lies in a directory is looked at; of an id that is not
            here, its name tells, or the executor will see.
    Raises:
        DefinitionError: the directory holds no model of a known family.
    """
    if not Path(model).is_absolute():
        if not is_hub_id(model):
            raise DefinitionError(f"{model!r} is neither an absolute path nor a Hugging Face id (NAME or OWNER/NAME)")
        return _multimodal_paths(model, None) if _MULTIMODAL_IDS.fullmatch(model) else {"chat": Chat(model_id=model)}
    architectures = _architectures(Path(model))
    if _embeds(Path(model), architectures):
        return {"embed": Embed(model_id=model)}
    if any(name in _MULTIMODAL for name in architectures):
        return _multimodal_paths(model, _tool_parser(Path(model)))
    if any(name.endswith("ForCausalLM") for name in architectures):
        return {"chat": Chat(model_id=model, tool_parser=_tool_parser(Path(model)))}
    raise DefinitionError(
        f"{model} is a {', '.join(architectures)}: known are text models (…ForCausalLM), embedding models (…Model), "
        f"and multimodal models ({', '.join(_MULTIMODAL)})"
    )


def _multimodal_paths(model: str, tool_parser: str | None) -> Paths:
    def path(*, split_encoder: bool, with_enc: bool) -> Mllm:
        return Mllm(model_id=model, split_encoder=split_encoder, with_enc=with_enc, tool_parser=tool_parser)

    return {
        "monolith": path(split_encoder=False, with_enc=True),
        "e-l": path(split_encoder=True, with_enc=False),
        "e-el": path(split_encoder=True, with_enc=True),
    }


def _embeds(directory: Path, architectures: list[str]) -> bool:
    """A model without a head is of no other use; where it has that of a language model, sentence-transformers' file
    tells."""
    return all(name.endswith("Model") for name in architectures) or (directory / "modules.json").is_file()


_WRITTEN_LIKE = {
    "hermes": r'{"name": <function-name>, "arguments": <args-json-object>}',
    "llama3_json": r'{"name": function name, "parameters": dictionary of argument name and its value}',
}
"""By vLLM's parser: how the template asks the model to write a call."""


def _tool_parser(directory: Path) -> str | None:
    """Only where it is certain: models of one architecture are taught different ways."""
    template = _chat_template(directory).replace('\\"', '"')
    return next((parser for parser, call in _WRITTEN_LIKE.items() if call in template), None)


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
    except (OSError, ValueError, AttributeError) as error:
        raise DefinitionError(f"{directory} is no model directory: {config.name}: {error}") from error
    if not isinstance(architectures, list) or not architectures:
        raise DefinitionError(f"{config} names no architectures")
    return [str(name) for name in architectures]

"""Model families: from a model to the app that serves it, so that deploying a known model needs no Python."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Any

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.embedding import Embed
from cornserve_tasklib.hub import is_hub_id
from cornserve_tasklib.llm import Chat


def paths_of(model: str) -> list[Task[Any, Any]]:
    """The paths by which a model can be served.

    Args:
        model: a Hugging Face id, or a directory. What lies in a directory is looked at; of an id that is not
            here, the executor will see.
    Raises:
        DefinitionError: the directory holds no model of a known family.
    """
    if not Path(model).is_absolute():
        if not is_hub_id(model):
            raise DefinitionError(f"{model!r} is neither an absolute path nor a Hugging Face id (NAME or OWNER/NAME)")
        return [Chat(model_id=model)]
    architectures = _architectures(Path(model))
    if _embeds(Path(model), architectures):
        return [Embed(model_id=model)]
    if any(name.endswith("ForCausalLM") for name in architectures):
        return [Chat(model_id=model, tool_parser=_tool_parser(Path(model)))]
    raise DefinitionError(
        f"{model} is a {', '.join(architectures)}: known are text models (…ForCausalLM) and embedding models (…Model)"
    )


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

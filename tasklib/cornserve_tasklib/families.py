"""Model families: from a model to the app that serves it, so that deploying a known model needs no Python."""

from __future__ import annotations

import re
from json import loads
from pathlib import Path
from typing import Any

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.llm import Chat

_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def paths_of(model: str) -> list[Task[Any, Any]]:
    """The paths by which a model can be served.

    Args:
        model: a Hugging Face id, or a directory. What lies in a directory is looked at; of an id that is not
            here, the executor will see.
    Raises:
        DefinitionError: the directory holds no model of a known family.
    """
    if not Path(model).is_absolute():
        if not _ID.fullmatch(model):
            raise DefinitionError(f"{model!r} is neither an absolute path nor a Hugging Face id (NAME or OWNER/NAME)")
        return [Chat(model_id=model)]
    architectures = _architectures(Path(model))
    if any(name.endswith("ForCausalLM") for name in architectures):
        return [Chat(model_id=model)]
    raise DefinitionError(f"{model} is a {', '.join(architectures)}: known are text models (…ForCausalLM)")


def _architectures(directory: Path) -> list[str]:
    config = directory / "config.json"
    try:
        architectures = loads(config.read_text()).get("architectures")
    except (OSError, ValueError, AttributeError) as error:
        raise DefinitionError(f"{directory} is no model directory: {config.name}: {error}") from error
    if not isinstance(architectures, list) or not architectures:
        raise DefinitionError(f"{config} names no architectures")
    return [str(name) for name in architectures]

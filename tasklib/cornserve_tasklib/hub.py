"""Names of models on Hugging Face's hub, and the files that every model has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator

_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

MODEL_INDEX: Final = "model_index.json"
"""The file that names the components of a pipeline of diffusers. Other models have a `config.json` instead."""

MODEL_FILES: Final = ("config.json", MODEL_INDEX)
"""Files of which every model directory contains one."""


def is_hub_id(model: str) -> bool:
    """Reports whether `model` has the form NAME or OWNER/NAME. Absolute paths do not, but relative ones may."""
    return _ID.fullmatch(model) is not None


def check_model_id(model: str) -> str:
    """Raises `ValueError` unless `model` is an absolute path or a Hugging Face id."""
    if not Path(model).is_absolute() and not is_hub_id(model):
        raise ValueError(
            f"{model!r} is neither an absolute path nor a Hugging Face id: give a model directory such as "
            "/models/qwen3, or an id NAME or OWNER/NAME"
        )
    return model


ModelId = Annotated[str, AfterValidator(check_model_id)]
"""A Hugging Face id, or the absolute path of a model directory. Executors do not run in the directory of the user."""

"""Names of models on Hugging Face's hub, and the files that every model has."""

from __future__ import annotations

import re
from typing import Final

_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

MODEL_INDEX: Final = "model_index.json"
"""The file that names the components of a pipeline of diffusers. Other models have a `config.json` instead."""

MODEL_FILES: Final = ("config.json", MODEL_INDEX)
"""Files of which every model directory contains one."""


def is_hub_id(model: str) -> bool:
    """Reports whether `model` has the form NAME or OWNER/NAME. Absolute paths do not, but relative ones may."""
    return _ID.fullmatch(model) is not None

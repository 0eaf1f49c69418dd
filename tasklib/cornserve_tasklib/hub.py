"""Names of models on Hugging Face's hub."""

from __future__ import annotations

import re

_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def is_hub_id(model: str) -> bool:
    """Reports whether `model` has the form NAME or OWNER/NAME. Absolute paths do not, but relative ones may."""
    return _ID.fullmatch(model) is not None

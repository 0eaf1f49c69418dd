"""What models on Hugging Face's hub are called."""

from __future__ import annotations

import re

_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def is_hub_id(model: str) -> bool:
    """Whether it is a NAME or OWNER/NAME, as no absolute path is. A relative one may be; whoever can look, looks."""
    return _ID.fullmatch(model) is not None

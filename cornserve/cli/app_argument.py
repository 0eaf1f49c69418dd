"""The argument APP of commands that take a file, a model or a deployed app."""

from __future__ import annotations

from pathlib import Path


def is_deployed_name(app: str) -> bool:
    """Returns whether the text is the name of a deployed app: neither a file, a directory nor a Hugging Face id."""
    return not (app.endswith(".py") or "/" in app or Path(app).is_dir())

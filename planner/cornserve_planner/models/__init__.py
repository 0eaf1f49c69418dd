"""The shipped models: their components, useful deployment options, and paths."""

from __future__ import annotations

from importlib.resources import files

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model_document import ModelDocument

_HERE = files("cornserve_planner.models")


def shipped_models() -> tuple[str, ...]:
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _HERE.iterdir() if entry.name.endswith(".yaml")))


def shipped_model(name: str) -> ModelDocument:
    """Raises `InvalidInputError` for an unknown name."""
    if name not in shipped_models():
        raise InvalidInputError("model", f"unknown model {name!r}: use one of {', '.join(shipped_models())}")
    return ModelDocument.read_shipped(_HERE / f"{name}.yaml")

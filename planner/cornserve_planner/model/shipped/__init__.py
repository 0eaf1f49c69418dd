"""The shipped models: their components, useful deployment options, and paths."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.document import ModelDocument

_HERE = files("cornserve_planner.model.shipped")


def shipped_models() -> tuple[str, ...]:
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _HERE.iterdir() if entry.name.endswith(".yaml")))


def shipped_model(name: str) -> ModelDocument:
    """Raises `InvalidInputError` for an unknown name."""
    if name not in shipped_models():
        raise unknown_model(name)
    return ModelDocument.read_shipped(_HERE / f"{name}.yaml")


def unknown_model(name: str) -> InvalidInputError:
    """Returns an error that suggests shipped models with similar names."""
    close = get_close_matches(name, shipped_models())
    advice = (
        f"did you mean {' or '.join(close)}?" if close else f"the shipped models are {', '.join(shipped_models())}."
    )
    return InvalidInputError(
        "model", f"unknown model {name!r}: {advice} To use your own, give a file such as model.yaml"
    )

"""Cornserve serves any-to-any multimodal models as graphs of components.

Model developers import this module. Names are loaded when they are first used, so that the command line starts fast,
and so that defining and deploying a model requires neither a web framework nor an engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cornserve.app.app import App
    from cornserve.client import AsyncClient, Client
    from cornserve.task import (
        Blob,
        ExecutorSpec,
        InvocationError,
        Output,
        Stream,
        Task,
        TaskError,
        Tensor,
        TensorStream,
        UnitTask,
        recorded,
        replayable_choice,
    )

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncClient",
    "Blob",
    "Client",
    "ExecutorSpec",
    "InvocationError",
    "Output",
    "Stream",
    "Task",
    "TaskError",
    "Tensor",
    "TensorStream",
    "UnitTask",
    "recorded",
    "replayable_choice",
]

_MODULES = {"App": "cornserve.app.app", "AsyncClient": "cornserve.client", "Client": "cornserve.client"}

if not TYPE_CHECKING:  # Type checkers would otherwise accept every misspelled name.

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES.get(name, "cornserve.task")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

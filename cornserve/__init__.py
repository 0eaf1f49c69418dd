"""Cornserve serves any-to-any multimodal models as graphs of components.

This module is what a model developer imports; it stays light, so that defining and deploying a model needs
neither a web framework nor an engine.
"""

from cornserve.app.app import App
from cornserve.task import ExecutorSpec, InvocationError, Output, Stream, Task, TaskError, Tensor, UnitTask, replayable_choice

__version__ = "0.1.0"

__all__ = [
    "App",
    "ExecutorSpec",
    "InvocationError",
    "Output",
    "Stream",
    "Task",
    "TaskError",
    "Tensor",
    "UnitTask",
    "replayable_choice",
]

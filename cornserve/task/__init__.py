"""Tasks, and how a request becomes a graph of unit-task invocations.

`base` and `unit` are what model developers subclass, `references` and `output` what flows between tasks, and
`recording` runs them. Nothing here knows of networks, executors' programs or HTTP.
"""

from cornserve.task.base import Task
from cornserve.task.errors import InvocationError, TaskError
from cornserve.task.output import Output
from cornserve.task.recording import replayable_choice
from cornserve.task.references import Blob, Stream, Tensor
from cornserve.task.spec import ExecutorSpec
from cornserve.task.unit import UnitTask

__all__ = [
    "Blob",
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

"""Tasks, and how the code of a composite task becomes a graph of unit-task invocations.

Model developers subclass the classes in `base` and `unit`. `references` and `output` define the values that flow
between tasks, and `recording` runs a task for one request. The package does not depend on networks, executors or HTTP.
"""

from cornserve.task.active_recording import replayable_choice
from cornserve.task.base import Task
from cornserve.task.errors import InvocationError, TaskError
from cornserve.task.output import Output, with_streams
from cornserve.task.references import Blob, Stream, Tensor, TensorStream
from cornserve.task.side_effects import recorded
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
    "TensorStream",
    "UnitTask",
    "recorded",
    "replayable_choice",
    "with_streams",
]

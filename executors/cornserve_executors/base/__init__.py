"""The base of all executors: server, metrics, readiness, drain, cancellation and errors.

An executor is a subclass of `Executor`; `python -m cornserve_executors.base` runs it.
"""

from cornserve_executors.base.context import InvocationContext
from cornserve_executors.base.executor import (
    CannotContinueError,
    EngineDeadError,
    Executor,
    ExecutorStartError,
    HandedOverError,
    InvalidRequestError,
    NotRepeatedError,
    OverloadedError,
    ProgressReporter,
    TransientStartError,
)

__all__ = [
    "CannotContinueError",
    "EngineDeadError",
    "Executor",
    "ExecutorStartError",
    "HandedOverError",
    "InvalidRequestError",
    "InvocationContext",
    "NotRepeatedError",
    "OverloadedError",
    "ProgressReporter",
    "TransientStartError",
]

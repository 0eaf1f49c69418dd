"""The base of all executors: server, metrics, readiness, drain, cancellation and errors.

An executor is a subclass of `Executor`; `python -m cornserve_executors.base` runs it.
"""

from cornserve_executors.base.context import InvocationContext
from cornserve_executors.base.executor import (
    EngineDeadError,
    Executor,
    ExecutorStartError,
    InvalidRequestError,
    NotRepeatedError,
    OverloadedError,
    ProgressReporter,
    TransientStartError,
)

__all__ = [
    "EngineDeadError",
    "Executor",
    "ExecutorStartError",
    "InvalidRequestError",
    "InvocationContext",
    "NotRepeatedError",
    "OverloadedError",
    "ProgressReporter",
    "TransientStartError",
]

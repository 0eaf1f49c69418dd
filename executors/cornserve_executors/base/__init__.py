"""What every executor shares: its server, metrics, readiness, drain, cancellation and errors.

An executor is a subclass of `Executor`; `python -m cornserve_executors.base` runs it.
"""

from cornserve_executors.base.call import Call
from cornserve_executors.base.executor import (
    EngineDeadError,
    Executor,
    InvalidRequestError,
    OverloadedError,
    StartError,
)

__all__ = ["Call", "EngineDeadError", "Executor", "InvalidRequestError", "OverloadedError", "StartError"]

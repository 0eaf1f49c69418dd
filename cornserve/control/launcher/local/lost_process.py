"""Finds the process of a replica whose process record is damaged.

The command line of an executor contains its spec, and its environment contains its replica and its slots.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

import psutil
from pydantic import ValidationError

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.task.spec import ExecutorSpec

SLOTS_VARIABLE = "CORNSERVE_SLOTS"
"""The device slots of a replica, separated by commas."""

EXECUTOR_MODULE = "cornserve_executors.base"


@dataclass(frozen=True, slots=True)
class RunningExecutor:
    spec: ExecutorSpec
    slots: tuple[str, ...]
    process_group: ProcessGroup


def find_executor_process(replica: ReplicaId) -> RunningExecutor | None:
    """Returns the running process that leads the replica's session."""
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError, ValidationError, ValueError):
            process = psutil.Process(pid)
            environment = process.environ()
            if environment.get(REPLICA_VARIABLE) == replica and os.getsid(pid) == pid:
                spec = _spec(process.cmdline())
                slots = tuple(filter(None, environment.get(SLOTS_VARIABLE, "").split(",")))
                return RunningExecutor(spec, slots, ProcessGroup.from_pid(pid, replica=replica))
    return None


def _spec(arguments: list[str]) -> ExecutorSpec:
    """Raises `ValueError` if the arguments are not those of an executor, and `ValidationError`."""
    module = arguments.index(EXECUTOR_MODULE)
    if arguments[module - 1] != "-m" or arguments[0] == "/bin/sh":  # The shell waits until the process is recorded.
        raise ValueError("not an executor")
    return ExecutorSpec.model_validate_json(arguments[arguments.index("--spec", module) + 1])

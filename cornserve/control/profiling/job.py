"""The messages between a controller and the process that measures the options of an app."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from cornserve.app.planning import WorkloadType
from cornserve.app.spec import AppSpec
from cornserve.control.preparation import AttemptError

TEMPORARY_PREFIX: Final = "cornserve-measured-"
"""The beginning of the names of the temporary apps of measurements that a controller has started."""

MARGIN_SECONDS: Final = 900.0
"""Time for the start of the process, and for requests that are still served at the end of the device time."""

_TEMPORARY_NAME: Final = re.compile(rf"{TEMPORARY_PREFIX}([0-9a-f]{{8}})-[0-9]+")


PROFILER_TOKEN: Final = "profiler"
"""The purpose of the token with which local processes use temporary apps: see `InstanceSecret.token`."""


class _ProfilingPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProfilingJob(_ProfilingPart):
    """The app whose options are measured.

    Args:
        uid: the uid of the app's record.
        spec: the app without a plan.
        gpus, gpus_of: the budget of the plan, if it has one.
        gpu_types: the types of GPUs or slots that the plan needs, by name of an option.
        seconds: device time.
        gateway: the URL of the gateway that the requests are sent to.
        home: the home of the instance, whose store keeps the results. In a pod, the controller keeps them.
        place: the cluster, for users. It is empty on the local launcher.
        cpu_image, gpu_image: the images of executors without and with GPUs, in a cluster.
    """

    app: str
    uid: str
    spec: AppSpec
    workload: dict[str, WorkloadType]
    gpus: int | None = None
    gpus_of: dict[str, int] = Field(default_factory=dict)
    gpu_types: dict[str, str] = Field(default_factory=dict)
    seconds: float
    gateway: str = ""
    home: Path | None = None
    place: str = ""
    cpu_image: str = ""
    gpu_image: str = ""

    @property
    def run(self) -> str:
        """The name of the measurements: at most one process measures an app."""
        return run_name(self.uid)

    @property
    def prefix(self) -> str:
        """The beginning of the names of the temporary apps."""
        return f"{TEMPORARY_PREFIX}{self.run}-"

    @property
    def limit_seconds(self) -> int:
        """The time after which the process is ended. It takes longer only if it hangs, or if its pod cannot start."""
        return ceil(self.seconds + MARGIN_SECONDS)

    def line(self, message: ProfilingMessage) -> str:
        """Returns the line of the output with a message."""
        return f"{self.run} {message.model_dump_json(exclude_defaults=True)}"

    def message(self, line: str) -> ProfilingMessage | None:
        """Returns the message of a line. None for other lines: libraries and apps may write to the same output."""
        run, _, content = line.partition(" ")
        if run != self.run:
            return None
        try:
            return ProfilingMessage.model_validate_json(content)
        except ValidationError:
            return None


class ProfilingMessage(_ProfilingPart):
    """A line of the output of the process.

    Args:
        progress: the current measurement, for users.
        measured: finished results of an option, by the name of their file in the store.
        profile: the profile of the app; `gpu_type` is the type of slots on which it was measured.
        error: the reason why the app cannot be measured, for users.
        interruption: the reason why the measurements have ended early, for users. Another process may succeed.
        slow_start: the option that was still starting at the end of the device time, which has ended them.
    """

    progress: str = ""
    measured: dict[str, str] = Field(default_factory=dict)
    profile: dict[str, JsonValue] | None = None
    gpu_type: str | None = None
    error: str = ""
    interruption: str = ""
    slow_start: str = ""


class ProfilerProcessError(AttemptError):
    """The process that measures has failed. Another one may succeed, and measures only what is missing.

    Args:
        slow_start: the option that was still starting at the end of the device time.
    """

    def __init__(self, message: str, *, slow_start: str = "") -> None:
        super().__init__(message)
        self.slow_start = slow_start


RunProfiler = Callable[[ProfilingJob], AsyncGenerator[ProfilingMessage, None]]
"""Starts a process that measures, and yields its messages until it has ended. It ends if the generator is closed.

Raises `ProfilerProcessError`.
"""


def run_name(uid: str) -> str:
    """Returns the name of the measurements of the app with this uid."""
    return sha256(uid.encode()).hexdigest()[:8]


def run_of_temporary_app(name: str) -> str | None:
    """Returns the name of the measurements that have deployed the app with this name. None for apps of users."""
    found = _TEMPORARY_NAME.fullmatch(name)
    return None if found is None else found[1]

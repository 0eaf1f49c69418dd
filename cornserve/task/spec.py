"""Executor specifications: they identify executors that unit tasks share, and locate their programs."""

from __future__ import annotations

from functools import cache, cached_property
from hashlib import sha256
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from json import dumps

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cornserve.task.errors import DefinitionError

ENTRY_POINT_GROUP = "cornserve.executors"
"""The entry point group in which packages register executors by name."""


class ExecutorSpec(BaseModel):
    """A deployment option: an executor with its settings and GPUs. Equal specs share executors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    executor: str
    """The name of the executor in the entry point group `cornserve.executors`."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the executor, which validates them when it starts."""
    gpus: int = Field(default=0, ge=0)
    """Number of GPUs of one replica. With 0, the replica runs on the CPU."""
    has_tensors: bool = False
    """Whether its outputs contain tensors, for which each replica allocates shared memory."""
    restart: str = ""
    """Any text. Another text makes another executor, which replaces one with equal settings."""

    @cached_property
    def key(self) -> str:
        """A name that is equal for equal specs only, and is a valid Kubernetes object name."""
        settings = [self.executor, self.config, self.gpus, *([self.restart] if self.restart else [])]
        identity = dumps(settings, sort_keys=True, separators=(",", ":"))
        return f"{self.executor}-{sha256(identity.encode()).hexdigest()[:12]}"


@cache
def installed_executors() -> EntryPoints:
    """Returns the executors of all installed packages. The first call reads the metadata of each package."""
    return entry_points(group=ENTRY_POINT_GROUP)


def find_executor(name: str) -> EntryPoint:
    """Raises `DefinitionError` if no installed package provides the executor."""
    if name not in installed_executors().names:
        installed_executors.cache_clear()  # A package may have been installed since the last call.
    found = installed_executors()
    if name not in found.names:
        raise DefinitionError(
            f"no executor {name!r} is installed (installed: {', '.join(sorted(found.names)) or 'none'}): "
            f"install a package with an entry point of this name in the group {ENTRY_POINT_GROUP!r}"
        )
    return found[name]

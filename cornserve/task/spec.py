"""What an executor is: the identity by which unit tasks share executors, and how its program is found."""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from json import dumps

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cornserve.task.errors import DefinitionError

EXECUTORS = "cornserve.executors"
"""The entry point group in which packages register executors, by name."""


class ExecutorSpec(BaseModel):
    """A deployment option: an executor with its settings and GPUs. Equal specs share executors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    executor: str
    """Name in the entry point group `cornserve.executors`."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Validated by the executor itself when it starts."""
    gpus: int = Field(default=0, ge=0)
    """GPUs of one replica. 0: it needs none."""

    @cached_property
    def key(self) -> str:
        """A name that equal specs share and others do not; fits Kubernetes' rules for names."""
        identity = dumps([self.executor, self.config, self.gpus], sort_keys=True, separators=(",", ":"))
        return f"{self.executor}-{sha256(identity.encode()).hexdigest()[:12]}"


def find_executor(name: str) -> EntryPoint:
    """Raises `DefinitionError` if no installed package brings the executor."""
    found = entry_points(group=EXECUTORS)
    if name not in found.names:
        raise DefinitionError(
            f"no executor {name!r} is installed (there are: {', '.join(sorted(found.names)) or 'none'}); "
            f"a package brings one by an entry point in the group {EXECUTORS!r}"
        )
    return found[name]

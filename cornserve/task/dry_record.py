"""Records a task without executors, up to the first value that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cornserve.task.base import Task, run_to_end
from cornserve.task.component_parts import ComponentParts, wholes
from cornserve.task.errors import Suspension
from cornserve.task.recording import DEFAULT_MAX_INVOCATIONS, Invocation, Recording
from cornserve.task.unit import UnitTask
from cornserve_policies.replayable_random import ReplayableRandom


class DryRecording(Recording):
    """The invocations that a task records before it waits for a value, and the components that they run.

    Args:
        request_id: determines random choices of the task.
        random_index: the index of the task's first random number.
    """

    def __init__(
        self, request_id: str = "", random_index: int = 0, *, max_invocations: int = DEFAULT_MAX_INVOCATIONS
    ) -> None:
        super().__init__(ReplayableRandom(request_id, random_index), max_invocations=max_invocations)
        self.components: list[frozenset[str]] = []
        """The components of each invocation, or their parts, with the prefixes of their models."""
        self.is_complete = False
        """Whether the task has ended. If not, it waits for a value, and may record more invocations afterward."""
        self._prefixes: Mapping[str, str] = {}

    def record(self, task: Task[Any, Any], request: Any) -> None:
        """Runs `task` up to the first value that it waits for. Raises the errors of the task."""
        self._prefixes = task.model_prefixes
        self.is_complete = not isinstance(self.run(task.name, lambda: run_to_end(task.invoke(request))), Suspension)

    def invoke(self, task: UnitTask[Any, Any], request: Any) -> Any:
        components = task.components(request)
        if self._prefixes:
            prefix = self._prefixes.get(getattr(task, "model_id", ""), "")
            components = frozenset(prefix + component for component in components)
        self.components.append(components)
        return super().invoke(task, request)

    @property
    def steps(self) -> Iterator[tuple[Invocation, frozenset[str]]]:
        """The invocations with their components."""
        return zip(self.invocations, self.components, strict=True)

    @property
    def needed_components(self) -> frozenset[str]:
        """The components that the request needs, which are its type [C §4.1]. Parts count as their components.

        Components that run only after a value has arrived are not among them.
        """
        return wholes(frozenset().union(*self.components))

    def split_components(self, parts: ComponentParts) -> None:
        """Replaces components that have parts by these."""
        self.components = [parts.split(components) for components in self.components]

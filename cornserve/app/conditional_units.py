"""The unit tasks of an app that run only after a value has arrived, such as a generator of images that a chat calls.

Dry records end before them, so their inputs are unknown. Each of them counts as one component.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Self

from cornserve.app.app import App
from cornserve.app.graph import GraphOption, GraphStep
from cornserve.app.probed_types import ProbedType
from cornserve.task.unit import UnitTask, unit_tasks


@dataclass(frozen=True, slots=True)
class ConditionalUnits:
    """The unit tasks that may run after a value has arrived, by path.

    Args:
        paths: by path, its unit tasks, by the key of their executor.
        components: by the key of the executor, the component.
    """

    paths: Sequence[Mapping[str, UnitTask[Any, Any]]]
    components: Mapping[str, str]

    @classmethod
    def find(cls, app: App, types: Iterable[ProbedType]) -> Self:
        """Returns the unit tasks that no dry record reaches, on the paths where one of them waits for a value."""
        types = list(types)
        records = [recording for probed in types for recording in probed.recordings if recording is not None]
        recorded = {invocation.executor_key for recording in records for invocation in recording.invocations}
        waits = [
            any((recording := probed.recordings[index]) is not None and not recording.is_complete for probed in types)
            for index in range(len(app.paths))
        ]
        paths = [
            {unit.key: unit for unit in unit_tasks(path) if unit.key not in recorded} if may_follow else {}
            for path, may_follow in zip(app.paths, waits, strict=True)
        ]
        known = frozenset(component for recording in records for component in recording.needed_components)
        return cls(paths, _components(app, paths, known))

    def options(self) -> Iterator[GraphOption]:
        """Yields the option of each executor."""
        units = {key: unit for path in self.paths for key, unit in path.items()}
        return (task_option(unit, (self.components[key],)) for key, unit in units.items())

    def steps(self, path: int, option_names: Mapping[str, str]) -> tuple[GraphStep, ...]:
        """Returns the steps that may follow on a path.

        Args:
            option_names: by the key of the executor.
        """
        return tuple(
            GraphStep(option=option_names[key], components=(self.components[key],)) for key in self.paths[path]
        )


def task_option(task: UnitTask[Any, Any], components: tuple[str, ...]) -> GraphOption:
    """Returns the option that runs a unit task."""
    return GraphOption(
        executor=task.key,
        task=task.name,
        settings=task.model_dump(mode="json", exclude_defaults=True),
        components=components,
        gpus=task.spec.gpus,
    )


def _components(
    app: App, paths: Sequence[Mapping[str, UnitTask[Any, Any]]], recorded: frozenset[str]
) -> dict[str, str]:
    """Names components after executors, like `UnitTask.components`. On one path, their names differ.

    Args:
        recorded: the components of dry records.
    """
    names: dict[str, str] = {}
    for path, units in zip(app.paths, paths, strict=True):
        taken = recorded | {names[key] for key in units if key in names}
        for key, unit in units.items():
            if key not in names:
                name = path.model_prefixes.get(getattr(unit, "model_id", ""), "") + unit.executor
                candidates = chain([name], (f"{name}-{number}" for number in count(2)))
                names[key] = next(candidate for candidate in candidates if candidate not in taken)
                taken |= {names[key]}
    return names

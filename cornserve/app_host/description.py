"""Descriptions of apps for processes that do not import their code."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cornserve.app.app import App
from cornserve.app.graph import AppGraph
from cornserve.app.graph_recording import record_graph
from cornserve.app.media_slots import REQUESTS_WITH_MEDIA
from cornserve.app.operations import Operation, supported_operations
from cornserve.task.base import Task
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec
from cornserve.task.unit import unit_tasks

_LIBRARY = "cornserve_tasklib"


class LibraryPath(BaseModel):
    """A path that is a task of `cornserve_tasklib`: any process can build it without an app's code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    task: str
    """The name of the task's class in the module."""
    fields: str
    """The task's fields as JSON."""

    @classmethod
    def of_task(cls, task: Task[Any, Any]) -> LibraryPath | None:
        """Returns the description of a task of the library, and None for other tasks."""
        task_type = type(task)
        if getattr(sys.modules.get(task_type.__module__), task_type.__name__, None) is not task_type:
            return None
        path = cls(module=task_type.__module__, task=task_type.__name__, fields=task.model_dump_json())
        try:
            built = path.build()
        except (DefinitionError, ValidationError):
            return None
        return path if built == task and _specs(built) == _specs(task) else None

    def build(self) -> Task[Any, Any]:
        """Returns the task. Raises `DefinitionError` if it is not a task of the library."""
        task_type = None
        if self.module.partition(".")[0] == _LIBRARY:
            task_type = getattr(import_module(self.module), self.task, None)
        if not (isinstance(task_type, type) and issubclass(task_type, Task)):
            raise DefinitionError(f"{self.module}.{self.task} is not a task of {_LIBRARY}")
        return task_type.model_validate_json(self.fields)


def _specs(task: Task[Any, Any]) -> list[ExecutorSpec]:
    return [unit.spec for unit in unit_tasks(task)]


class AppDescription(BaseModel):
    """An app without its code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    paths: list[str]
    """The names of the paths' task classes."""
    shares: list[float]
    max_invocations: int
    operations: frozenset[Operation]
    """The operations of OpenAI's API that can call the app."""
    finds_media: bool
    """Whether requests can contain media."""
    executor_specs: dict[str, ExecutorSpec]
    """The executors that the app needs, by key."""
    library_paths: list[LibraryPath] | None
    """The paths, if all of them are tasks of `cornserve_tasklib`."""
    graph: AppGraph | None = None
    """The executor graph. None for an app with a custom request type and without probes."""

    @classmethod
    def of_app(cls, app: App) -> AppDescription:
        """Describes a loaded app. Runs code of the app.

        Raises `DefinitionError` if an executor is not installed, or if the paths are not alternatives for every request
        type.
        """
        library_paths = [path for task in app.paths if (path := LibraryPath.of_task(task)) is not None]
        return cls(
            name=app.name,
            paths=[path.name for path in app.paths],
            shares=list(app.shares),
            max_invocations=app.max_invocations,
            operations=supported_operations(app.request_types, app.response_type),
            finds_media=any(
                isinstance(kind, type) and issubclass(kind, REQUESTS_WITH_MEDIA) for kind in app.request_types
            ),
            executor_specs=app.executor_specs(),
            library_paths=library_paths if len(library_paths) == len(app.paths) else None,
            graph=record_graph(app),
        )

    def build_library_app(self) -> App:
        """Returns the app. Raises `DefinitionError` if not all of its paths are tasks of `cornserve_tasklib`."""
        if self.library_paths is None:
            raise DefinitionError(f"the app {self.name!r} has tasks that {_LIBRARY} does not define")
        paths = [path.build() for path in self.library_paths]
        return App(name=self.name, paths=paths, shares=self.shares, max_invocations=self.max_invocations)

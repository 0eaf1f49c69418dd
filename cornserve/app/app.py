"""An app: alternative paths deployed under one model name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from cornserve.task.base import Task, require_invoke, require_types
from cornserve.task.errors import DefinitionError
from cornserve.task.recording import DEFAULT_MAX_INVOCATIONS
from cornserve.task.spec import ExecutorSpec, find_executor
from cornserve.task.unit import unit_tasks
from cornserve_policies.replayable_random import check_weights

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
"""App names are valid as model names in requests and as names of Kubernetes resources."""


class App:
    """A model that clients can request: paths with the same request and response type.

    The paths compute the same result. They differ in the executors that run the model's components.

        app = App(name="qwen2.5-vl", paths=[Mllm(model_id=M), Mllm(model_id=M, split_encoder=True)])

    Args:
        name: the `model` of requests; lower case letters, digits, dots, dashes and underscores.
        paths: the alternatives, at least one.
        shares: the shares of the requests that the paths receive, as non-negative weights; equal by default.
        max_invocations: maximum number of unit-task invocations per request.
        probes: example requests, at least one of each request type, by which the app is planned. Apps that take chats,
            completions or texts to embed have default ones.
    """

    def __init__(
        self,
        name: str,
        paths: list[Task[Any, Any]],
        *,
        shares: list[float] | None = None,
        max_invocations: int = DEFAULT_MAX_INVOCATIONS,
        probes: Sequence[Any] = (),
    ) -> None:
        check_name(name)
        if not paths:
            raise DefinitionError(f"app {name!r} has no paths: pass at least one task as `paths`")
        _check_paths(name, paths)
        for path in paths:
            _require_all_types(path)
        first = paths[0]
        for path in paths[1:]:
            if (path.request_type, path.response_type) != (first.request_type, first.response_type):
                raise DefinitionError(
                    f"the paths of app {name!r} are not alternatives: {first.name} and {path.name} differ in their "
                    "request or response type"
                )
        shares = [1.0] * len(paths) if shares is None else shares
        if len(shares) != len(paths):
            raise DefinitionError(
                f"app {name!r} has {len(paths)} paths but {len(shares)} shares: give one for each path"
            )
        try:
            check_weights(shares)
        except ValueError as error:
            raise DefinitionError(f"invalid shares of app {name!r}: {error}") from error
        self.name = name
        self.paths = tuple(paths)
        self.shares = tuple(shares)
        self.max_invocations = max_invocations
        self.probes = tuple(probes)
        _check_probes(self)
        for path in paths:
            require_invoke(path)

    @property
    def request_type(self) -> Any:
        return self.paths[0].request_type

    @cached_property
    def request_types(self) -> tuple[Any, ...]:
        """The alternatives of the request type."""
        return self.paths[0].request_types()

    @property
    def response_type(self) -> Any:
        return self.paths[0].response_type

    def executor_specs(self) -> dict[str, ExecutorSpec]:
        """Returns the executors that the app needs, by key: the nodes of its executor graph.

        Raises `DefinitionError` if an executor is not installed.
        """
        units = [unit for path in self.paths for unit in unit_tasks(path)]
        specs = {unit.key: unit.spec for unit in units}
        if not specs:
            raise DefinitionError(
                f"app {self.name!r} has no unit task: create them in post_init, as attributes of the task"
            )
        for spec in specs.values():
            find_executor(spec.executor)
        return specs


def _check_paths(name: str, paths: object) -> None:
    wrong = [path for path in paths if not isinstance(path, Task)] if isinstance(paths, list | tuple) else [paths]
    if wrong:
        raise DefinitionError(
            f"the paths of app {name!r} must be a list of tasks, not {repr(wrong[0])[:80]}: pass a list, `[MyTask()]`"
        )


def _check_probes(app: App) -> None:
    expected = tuple(kind for kind in app.request_types if isinstance(kind, type))
    for probe in app.probes:
        if expected and not isinstance(probe, expected):
            raise DefinitionError(
                f"the probes of app {app.name!r} must be requests of the type "
                f"{' or '.join(kind.__name__ for kind in expected)}, not {type(probe).__name__}"
            )


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"invalid app name {name!r}: use 1 to 63 lower case letters and digits, and '.', '_' and '-' between them"
        )


def _require_all_types(task: Task[Any, Any]) -> None:
    """Raises `DefinitionError` if the task, or one that it calls, lacks a request and a response type."""
    require_types(type(task))
    for subtask in task.subtasks():
        _require_all_types(subtask)

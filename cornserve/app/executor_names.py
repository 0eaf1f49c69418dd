"""The names of executors in the settings of an app."""

from __future__ import annotations

from collections.abc import Collection

from cornserve.app.record import AppSpec
from cornserve.task.errors import DefinitionError


def check_executor_names(spec: AppSpec, executors: Collection[str]) -> None:
    """Checks that numbers of replicas are those of executors of the app. Raises `DefinitionError`.

    Args:
        executors: the names of the app's executors.
    """
    for name in spec.executor_replicas.keys() - set(executors):
        known = ", ".join(sorted(set(executors)))
        raise DefinitionError(f"executor_replicas: the app has no executor {name!r}: choose from {known}")

"""The names of executors in the settings of an app."""

from __future__ import annotations

from collections.abc import Collection

from cornserve.app.spec import AppSpec
from cornserve.task.errors import DefinitionError


def check_executor_names(spec: AppSpec, executors: Collection[str]) -> None:
    """Checks that numbers of replicas, autoscaling and restarts are of executors of the app. Raises `DefinitionError`.

    Args:
        executors: the names of the app's executors.
    """
    autoscaling = spec.policies.autoscaling
    autoscaled = [] if autoscaling is None else [executor.name for executor in autoscaling.executors]
    fields = {
        "executor_replicas": spec.executor_replicas,
        "policies.autoscaling": autoscaled,
        "restart.executors": [] if spec.restart is None else spec.restart.executors,
    }
    for field, names in fields.items():
        for name in names:
            if name not in executors:
                known = ", ".join(sorted(executors))
                raise DefinitionError(f"{field}: the app has no executor {name!r}: choose from {known}")

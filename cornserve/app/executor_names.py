"""The names of executors in the settings of an app."""

from __future__ import annotations

from collections.abc import Mapping

from cornserve.app.route_plan import RoutePlan
from cornserve.app.settings import MAX_REPLICAS
from cornserve.app.spec import AppSpec
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec


def check_executor_names(spec: AppSpec, executors: Mapping[str, ExecutorSpec]) -> None:
    """Checks that numbers of replicas, autoscaling and restarts are of executors of the app. Raises `DefinitionError`.

    Args:
        executors: the app's executors, by key.
    """
    known = {executor.executor for executor in executors.values()}
    fields = {
        "executor_replicas": spec.executor_replicas,
        "policies.autoscaling": _autoscaled(spec),
        "restart.executors": [] if spec.restart is None else spec.restart.executors,
    }
    for field, names in fields.items():
        for name in names:
            if name not in known:
                choices = ", ".join(sorted(known))
                raise DefinitionError(f"{field}: the app has no executor {name!r}: choose from {choices}")


def check_autoscaled_cell(spec: AppSpec, executors: Mapping[str, ExecutorSpec], plan: RoutePlan) -> None:
    """Checks that each autoscaled executor of an app with a plan has one number of replicas. Raises `DefinitionError`.

    Args:
        executors: the app's executors, by key.
    """
    for name in _autoscaled(spec):
        keys = {key for cell in plan.cells for key in cell.replicas if executors[key].executor == name}
        if len(keys) > 1:
            raise DefinitionError(
                f"policies.autoscaling: the plan runs {len(keys)} executors with the name {name!r}, whose replicas are "
                "not one number: autoscale others only, or make a plan with one of them"
            )
        replicas = sum(cell.replicas.get(key, 0) for cell in plan.cells for key in keys)
        if replicas > MAX_REPLICAS:
            raise DefinitionError(
                f"policies.autoscaling: the plan runs {replicas} replicas of {name!r}: at most {MAX_REPLICAS} can be "
                "autoscaled"
            )


def _autoscaled(spec: AppSpec) -> list[str]:
    autoscaling = spec.policies.autoscaling
    return [] if autoscaling is None else [executor.name for executor in autoscaling.executors]

"""The option of `cornserve deploy` that autoscales an app without a plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from cornserve.cli.console import CliError, stderr
from cornserve.cli.derived_capacity import CapacityInputs, derive_capacities

if TYPE_CHECKING:
    from cornserve.client.deploy_target import DeployTarget

_EXECUTOR: Final = re.compile(
    r"(?P<name>[^=:]+)(=(?P<capacity>[0-9.]+)(?P<unit>tokens|requests))?(:(?P<min_replicas>\d+)-(?P<max_replicas>\d+))?"
)
_SETTING: Final = re.compile(r"(?P<name>[a-z]+_seconds)=(?P<value>[0-9.]+)")


def has_derived_capacity(settings: list[str]) -> bool:
    """Whether the load that a replica takes follows from other options for an executor."""
    found = map(_EXECUTOR.fullmatch, settings)
    return any(executor is not None and executor["capacity"] is None for executor in found)


def with_autoscaling(target: DeployTarget, settings: list[str], inputs: CapacityInputs) -> DeployTarget:
    """Returns the target with the settings of its autoscaling: executors, and times. Raises `CliError`.

    Args:
        inputs: the options from which the loads follow that the settings do not state.
    """
    if not settings:
        return target
    from pydantic import ValidationError

    from cornserve.app.spec import AppSpec
    from cornserve.validation_errors import describe_all

    executors, values = list[dict[str, Any]](), dict[str, object]()
    for setting in settings:
        if executor := _EXECUTOR.fullmatch(setting):
            executors.append({name: value for name, value in executor.groupdict().items() if value is not None})
        elif time := _SETTING.fullmatch(setting):
            values[time["name"]] = time["value"]
        else:
            raise CliError(
                f"--autoscale: {setting!r} is not an executor with the load per second of a replica, such as "
                "llm=2000tokens, llm=2000tokens:1-4 or resize=8requests, and not a time such as shrink_seconds=600"
            )
    if derived := [each["name"] for each in executors if "capacity" not in each]:
        capacities = derive_capacities(target, derived, inputs)
        for scaled in executors:
            if (found := capacities.get(scaled["name"])) is not None and "capacity" not in scaled:
                scaled |= {"capacity": found.capacity, "unit": found.unit}
                text = f"a replica of {scaled['name']} takes {found} within its part of --ttft"
                stderr().print(text, markup=False, soft_wrap=True)
    spec = target.spec.model_dump(exclude_unset=True)
    policies = spec.get("policies", {}) | {"autoscaling": {"executors": executors, **values}}
    try:
        return target._replace(spec=AppSpec.model_validate(spec | {"policies": policies}))
    except ValidationError as error:
        raise CliError(f"--autoscale: {describe_all(error.errors())}") from None

"""The option of `cornserve deploy` that autoscales an app without a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from cornserve.cli.console import CliError, stderr

if TYPE_CHECKING:
    from cornserve.cli.derived_capacity import DerivedCapacity
    from cornserve.client.deploy_target import DeployTarget

_EXECUTOR: Final = re.compile(
    r"(?P<name>[^=:]+)(=(?P<capacity>[0-9.]+)(?P<unit>tokens|requests))?(:(?P<min_replicas>\d+)-(?P<max_replicas>\d+))?"
)
_SETTING: Final = re.compile(r"(?P<name>[a-z]+_seconds)=(?P<value>[0-9.]+)")


class AutoscalingOption(NamedTuple):
    """The settings of `--autoscale`: the fields of executors, with or without a load, and times by name."""

    executors: list[dict[str, Any]]
    times: dict[str, str]

    @classmethod
    def parse(cls, settings: list[str]) -> Self:
        """Raises `CliError`."""
        option = cls([], {})
        for setting in settings:
            if executor := _EXECUTOR.fullmatch(setting):
                fields = {name: value for name, value in executor.groupdict().items() if value is not None}
                option.executors.append(fields)
            elif time := _SETTING.fullmatch(setting):
                option.times[time["name"]] = time["value"]
            else:
                raise CliError(
                    f"--autoscale: {setting!r} is not an executor with the load per second of a replica, such as "
                    "llm=2000tokens, llm=2000tokens:1-4 or resize=8requests, and not a time such as shrink_seconds=600"
                )
        return option

    @property
    def derived(self) -> list[str]:
        """The names of the executors whose load follows from other options."""
        return [executor["name"] for executor in self.executors if "capacity" not in executor]


def with_autoscaling(
    target: DeployTarget, option: AutoscalingOption, capacities: Mapping[str, DerivedCapacity]
) -> DeployTarget:
    """Returns the target with the settings of its autoscaling. Raises `CliError`.

    Args:
        capacities: the loads that the option does not state, by executor.
    """
    if not (option.executors or option.times):
        return target
    from pydantic import ValidationError

    from cornserve.app.spec import AppSpec
    from cornserve.validation_errors import describe_all

    executors = []
    for scaled in option.executors:
        fields = dict(scaled)
        if "capacity" not in scaled:
            found = capacities[scaled["name"]]
            fields |= {"capacity": found.capacity, "unit": found.unit}
            text = f"a replica of {scaled['name']} takes {found} within its part of --ttft"
            stderr().print(text, markup=False, soft_wrap=True)
        executors.append(fields)
    spec = target.spec.model_dump(exclude_unset=True)
    policies = spec.get("policies", {}) | {"autoscaling": {"executors": executors, **option.times}}
    try:
        return target._replace(spec=AppSpec.model_validate(spec | {"policies": policies}))
    except ValidationError as error:
        raise CliError(f"--autoscale: {describe_all(error.errors())}") from None

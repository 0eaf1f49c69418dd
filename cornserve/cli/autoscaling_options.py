"""The option of `cornserve deploy` that autoscales an app."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from cornserve.cli.console import CliError, print_warning, stderr
from cornserve_planner.terminal import parse_times

if TYPE_CHECKING:
    from cornserve.cli.derived_capacity import DerivedCapacity
    from cornserve.client.deploy_target import DeployTarget

_EXECUTOR: Final = re.compile(
    r"(?P<name>[^=:]+)(=(?P<capacity>[0-9.]+)(?P<unit>tokens|requests))?(:(?P<min_replicas>\d+)-(?P<max_replicas>\d+))?"
)


class AutoscalingOption(NamedTuple):
    """The settings of `--autoscale`: the fields of executors, with or without a load, and times by name."""

    executors: list[dict[str, Any]]
    times: dict[str, float]

    @classmethod
    def parse(cls, settings: list[str]) -> Self:
        """Raises `CliError`, and `PlannerError` for times."""
        executors, times = parse_times("--autoscale", settings)
        option = cls([], times)
        for setting in executors:
            executor = _EXECUTOR.fullmatch(setting)
            if executor is None:
                raise CliError(
                    f"--autoscale: {setting!r} is not an executor with the load per second of a replica, such as "
                    "llm=2000tokens, llm=2000tokens:1-4 or resize=8requests, and not a time such as shrink_seconds=600"
                )
            fields = {name: value for name, value in executor.groupdict().items() if value is not None}
            option.executors.append(fields)
        return option

    @property
    def names(self) -> list[str]:
        return [executor["name"] for executor in self.executors]

    @property
    def derived(self) -> list[str]:
        """The names of the executors whose load follows from other options."""
        return [executor["name"] for executor in self.executors if "capacity" not in executor]

    def of_plan(self, capacities: Mapping[str, DerivedCapacity]) -> Self:
        """Returns the option without executors whose load does not follow from the plan, which does not run them.

        Raises `CliError` if it runs no executor of the option.
        """
        kept = [executor for executor in self.executors if "capacity" in executor or executor["name"] in capacities]
        if not kept:
            raise CliError(f"--autoscale: the plan does not run {', '.join(self.names)}: name other executors")
        if missing := [executor["name"] for executor in self.executors if executor not in kept]:
            print_warning(f"--autoscale: the plan does not run {', '.join(missing)}")
        return self._replace(executors=kept)


def with_autoscaling(
    target: DeployTarget, option: AutoscalingOption, capacities: Mapping[str, DerivedCapacity]
) -> DeployTarget:
    """Returns the target with the settings of its autoscaling. Raises `CliError`.

    Args:
        capacities: the loads that the option does not state, by executor. A load that is missing because it follows
            from a plan is 1: the settings can be checked before the plan is made.
    """
    if not (option.executors or option.times):
        return target
    from pydantic import ValidationError

    from cornserve.app.spec import AppSpec
    from cornserve.validation_errors import describe_all

    executors = []
    for scaled in option.executors:
        fields = dict(scaled)
        if found := capacities.get(scaled["name"]):
            fields |= {"capacity": found.capacity, "unit": found.unit}
            text = f"a replica of {scaled['name']} takes {found} within its part of --ttft"
            stderr().print(text, markup=False, soft_wrap=True)
        executors.append({"capacity": 1.0, **fields})
    spec = target.spec.model_dump(exclude_unset=True)
    policies = spec.get("policies", {}) | {"autoscaling": {"executors": executors, **option.times}}
    try:
        return target._replace(spec=AppSpec.model_validate(spec | {"policies": policies}))
    except ValidationError as error:
        raise CliError(f"--autoscale: {describe_all(error.errors())}") from None

"""The option of `cornserve deploy` that autoscales an app without a plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.client.deploy_target import DeployTarget

_EXECUTOR: Final = re.compile(
    r"(?P<name>[^=]+)=(?P<capacity>[0-9.]+)(?P<unit>tokens|requests)(:(?P<min_replicas>\d+)-(?P<max_replicas>\d+))?"
)
_SETTING: Final = re.compile(r"(?P<name>[a-z]+_seconds)=(?P<value>[0-9.]+)")


def with_autoscaling(target: DeployTarget, settings: list[str]) -> DeployTarget:
    """Returns the target with the settings of its autoscaling: executors, and times. Raises `CliError`."""
    if not settings:
        return target
    from pydantic import ValidationError

    from cornserve.app.spec import AppSpec
    from cornserve.validation_errors import describe_all

    executors, values = [], dict[str, object]()
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
    spec = target.spec.model_dump(exclude_unset=True)
    policies = spec.get("policies", {}) | {"autoscaling": {"executors": executors, **values}}
    try:
        return target._replace(spec=AppSpec.model_validate(spec | {"policies": policies}))
    except ValidationError as error:
        raise CliError(f"--autoscale: {describe_all(error.errors())}") from None

"""The option of `cornserve deploy` that adapts an app to its load."""

from __future__ import annotations

from json import loads
from typing import TYPE_CHECKING

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.client.deploy_target import DeployTarget


def with_adaptation(target: DeployTarget, settings: list[str]) -> DeployTarget:
    """Returns the target with settings of its adaptation: `on`, or NAME=VALUE. Raises `CliError`."""
    if not settings:
        return target
    from pydantic import ValidationError

    from cornserve.app.settings import AdaptationSettings
    from cornserve.validation_errors import describe_all

    values = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if separator:
            values[name] = _parse(value)
        elif setting != "on":
            raise CliError(f"{setting!r} is not a valid setting: give `on` or NAME=VALUE, such as max_rate=40")
    try:
        adaptation = AdaptationSettings.model_validate(values)
    except ValidationError as error:
        raise CliError(f"--adapt: {describe_all(error.errors())}") from None
    policies = target.spec.policies.model_copy(update={"adaptation": adaptation})
    return target._replace(spec=target.spec.model_copy(update={"policies": policies}))


def _parse(value: str) -> object:
    try:
        return loads(value)
    except ValueError:
        return value

"""The options of `cornserve deploy` that set the latency targets of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.client.deploy_target import DeployTarget

_FIELDS = {"--ttft": "ttft_seconds", "--tbt": "tbt_seconds", "--e2e": "end_to_end_seconds"}


def with_latency_targets(
    target: DeployTarget, *, ttft: float | None, tbt: float | None, e2e: float | None, admission: bool
) -> DeployTarget:
    """Returns the target with the given latency targets, in seconds. Raises `CliError`."""
    given = {"--ttft": ttft, "--tbt": tbt, "--e2e": e2e}
    values = {_FIELDS[option]: seconds for option, seconds in given.items() if seconds is not None}
    if admission and ttft is None and e2e is None:
        raise CliError("--admission needs a target: give --ttft or --e2e")
    if not values:
        return target
    from pydantic import ValidationError

    from cornserve.app.settings import LatencyTargetSettings
    from cornserve.validation_errors import describe_error

    try:
        targets = LatencyTargetSettings.model_validate(values | ({"admission": True} if admission else {}))
    except ValidationError as error:
        first = error.errors()[0]
        (option,) = (option for option, field in _FIELDS.items() if field in first["loc"])
        raise CliError(f"{option}: {describe_error(first)}") from None
    policies = target.spec.policies.model_copy(update={"targets": targets})
    return target._replace(spec=target.spec.model_copy(update={"policies": policies}))

"""The processes of a local instance, with their command lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from cornserve.access import SECRETS
from cornserve.control.local_instance.addresses import InstanceAddresses
from cornserve.control.local_instance.managed_process import ProcessSpec
from cornserve.control.local_instance.options import InstanceOptions
from cornserve.home import HOME_VARIABLE
from cornserve.limits import Limits
from cornserve.observe.log_format import LOG_FORMAT_VARIABLE

NO_SECRETS = dict.fromkeys(SECRETS, "")
"""Removes the secrets from the controller's environment, which executors inherit."""


def process_specs(options: InstanceOptions, addresses: InstanceAddresses) -> list[ProcessSpec]:
    return [*_gateways(options, addresses), _controller(options, addresses)]


def gateway_name(number: int) -> str:
    """Returns the name of the gateway with this number, from 1: its log is `NAME.log`."""
    return "gateway" if number == 1 else f"gateway-{number}"


def _gateways(options: InstanceOptions, addresses: InstanceAddresses) -> Iterator[ProcessSpec]:
    command = ["cornserve.gateway", "--home", str(options.home.path)]
    command += ["--host", options.host, "--port", str(addresses.port)]
    command += ["--controller-metrics", addresses.controller_metrics, *options.secret_arguments]
    command += [*options.tls_arguments, *_gateway_limits(options).cli_arguments, *options.media_allowlist.cli_arguments]
    command += [*options.origins.cli_arguments, "--unknown-fields", options.unknown_fields]
    command += options.known_prices.cli_arguments
    if options.prometheus is not None:
        command += ["--prometheus", options.prometheus]
    if options.access_log:
        command.append("--access-log")
    if not options.console:
        command.append("--no-console")
    if not addresses.gateways:
        yield _spec(gateway_name(1), command, options)
    command += [part for address in addresses.gateways for part in ("--gateway", address)]
    for number, address in enumerate(addresses.gateways, start=1):
        yield _spec(gateway_name(number), [*command, "--own-address", address], options)


def _gateway_limits(options: InstanceOptions) -> Limits:
    """Divides the default memory for request bodies among the gateways."""
    limits = options.limits
    if limits.bodies_mib != Limits().bodies_mib:
        return limits
    return replace(limits, bodies_mib=max(limits.bodies_mib // options.gateways, limits.body_mib))


def _controller(options: InstanceOptions, addresses: InstanceAddresses) -> ProcessSpec:
    command = ["cornserve.control", "--home", str(options.home.path)]
    command += ["--metrics-port", addresses.controller_metrics.rpartition(":")[2]]
    command += [*options.tls_arguments, *options.limits.cli_arguments]
    command += [*options.slot_arguments, "--transport", options.transport]
    return _spec("controller", command, options, NO_SECRETS)


def _spec(
    name: str, command: list[str], options: InstanceOptions, environment: dict[str, str] | None = None
) -> ProcessSpec:
    # The source of an app may look for models in the home.
    common = {HOME_VARIABLE: str(options.home.path), LOG_FORMAT_VARIABLE: str(options.log_format)}
    return ProcessSpec(
        name,
        [sys.executable, "-m", *command],
        options.home.logs / f"{name}.log",
        common | (environment or {}),
        blocked_seconds=options.limits.blocked_seconds,
    )

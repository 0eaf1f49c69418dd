"""The profile that `cornserve deploy --profile` plans with: it must be one of this app on this device."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.app.graph import AppGraph
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.home import Home
    from cornserve.profiler.device import Device
    from cornserve.task.spec import ExecutorSpec
    from cornserve_planner.model.document import ModelDocument
    from cornserve_planner.profiles.profile import ModelProfile, OptionProfile


class GivenProfile(NamedTuple):
    """A profile of some options of an app.

    Args:
        slot_types: by option, the type of the slots on which it was measured, or None for any type.
        missing: the options without a throughput on the GPUs for which the app is planned.
    """

    profile: ModelProfile
    slot_types: Mapping[str, str | None]
    missing: Sequence[str]


def check_profile(
    client: Client, target: DeployTarget, graph: AppGraph, model: ModelDocument, file: Path, home: Home
) -> GivenProfile:
    """Reads a profile.

    The device of a gateway is unknown if it is neither the instance of the home nor in a cluster. Entries without the
    conditions of their measurement, such as published ones, are only checked for the type of slots.

    Args:
        model: the planner's model of the graph, with the GPUs for which the app is planned.
    Raises:
        CliError: an option was measured on a device that the instance does not have, or with another model or version.
        PlannerError: the file is not a valid profile, or one of another app.
    """
    from cornserve.profiler.device import UnknownDeviceError
    from cornserve_planner.profiles import profile_matching
    from cornserve_planner.profiles.profile import ModelProfile

    specs = _specs(target, graph)
    profile = ModelProfile.read(file)
    profile_matching.check_profile(model, profile)
    slot_types: dict[str, str | None] = {}
    for entry in profile.options:
        option = model.options[entry.option]
        if entry.gpus != option.gpus or option.gpu not in (None, entry.gpu):
            continue  # The planner does not use other types or numbers of GPUs.
        try:
            device = _device(client, entry, home)
        except UnknownDeviceError as error:
            raise CliError(f"{file.name}: {entry.option} was measured on {entry.gpu}: {error}") from error
        if device is not None:
            _check_conditions(file.name, entry, device, specs)
            slot_types[entry.option] = device.slot_type
    return GivenProfile(profile, slot_types, profile_matching.missing_options(model.graph(), profile))


def _specs(target: DeployTarget, graph: AppGraph) -> dict[str, ExecutorSpec]:
    """Returns the executors of the options. Runs the code of an app with source, whose prints go to standard error."""
    from cornserve.app.load import load_app, with_all_paths
    from cornserve.app.source import unload_app
    from cornserve.task.unit import unit_tasks

    module = "cornserve_checked_app"
    with redirect_stdout(sys.stderr):
        app = load_app(target.name, with_all_paths(target.spec), module)
    unload_app(module)
    units = {unit.key: unit for path in app.paths for unit in unit_tasks(path)}
    return {name: units[option.executor].spec for name, option in graph.options.items()}


def _device(client: Client, entry: OptionProfile, home: Home) -> Device | None:
    """Returns the device on which the entry's GPU type would run. Raises `UnknownDeviceError`."""
    from cornserve.instance import Instance
    from cornserve.profiler.device import ANY_NODE, Device

    if client.address.cluster is not None:
        name = None if entry.gpu == ANY_NODE else entry.gpu
        return Device.of_cluster(name, client.address.place) if entry.measured_with is not None else None
    instance = Instance.find_running(home)
    if instance is None or client.url not in (instance.url, *instance.gateways):
        return None
    return Device.find(home, entry.gpu)


def _check_conditions(file: str, entry: OptionProfile, device: Device, specs: Mapping[str, ExecutorSpec]) -> None:
    from cornserve.profiler.results import Conditions

    if entry.measured_with is None:
        return
    measured = Conditions(device=entry.gpu, **entry.measured_with.model_dump(exclude={"date"}))
    if changes := device.conditions(specs[entry.option]).changes_since(measured):
        raise CliError(
            f"{file}: {entry.option} was measured under other conditions: {', '.join(changes)}: measure it again with "
            "`cornserve profile`, or leave out --profile"
        )

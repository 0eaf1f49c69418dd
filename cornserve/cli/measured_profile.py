"""Measures the profile with which `cornserve deploy` plans an app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cornserve.cli.console import CliError, stderr
from cornserve.cli.profiling import Profiling, ProfilingOptions, profiling_errors

if TYPE_CHECKING:
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.home import Home
    from cornserve.profiler.device import Device
    from cornserve_planner.model_document import ModelDocument

HALF_WIDTH = 0.05
"""The largest half width of the 95 % confidence intervals, relative to the throughputs."""


class MeasuredProfile(NamedTuple):
    """A profile of all options of an app.

    Args:
        slot_type: the type of the slots on which they were measured, or None.
    """

    file: Path
    slot_type: str | None


def measure_profile(
    client: Client,
    target: DeployTarget,
    model: ModelDocument,
    workload: Path,
    gpus: int | None,
    seconds: float,
    home: Home,
) -> MeasuredProfile:
    """Measures the options whose results are missing or stale, and writes the planner's profile to the home.

    Args:
        gpus: the budget of the plan.
        seconds: device time.
    Raises:
        CliError, PlannerError: before an executor starts, if the workload is not one of the app, or if the slots or the
            device time do not suffice; later, if an option fails.
    """
    from cornserve.atomic_files import write_atomically

    options = ProfilingOptions(home, workload=_chats(model, workload), half_width=HALF_WIDTH)
    with profiling_errors():
        profiling = Profiling.of_target(client, target, options)
        device = profiling.profiler.device
        _check_budget(device, gpus)
        if missing := profiling.run(seconds):
            names = ", ".join(item.cost.what for item in missing)
            raise CliError(f"the budget did not suffice for {names}: increase --budget; finished measurements are kept")
        file = profiling.profiler.store.profile_file(target.name, device.name)
        write_atomically(file, profiling.profile(profiling.results).dump())
    stderr().print(f"profile: {file}", markup=False)
    return MeasuredProfile(file, device.slot_type)


def _chats(model: ModelDocument, workload: Path) -> Path | None:
    """Returns the workload's file of requests if the app takes chats. Raises `InvalidInputError` if it is not valid."""
    from cornserve_planner.workload.document import REQUEST_SUFFIXES, read_workload, workload_files

    graph = model.graph()
    for kind in read_workload(workload, model.modalities).shares:
        graph.valid_paths(kind)
    if model.modalities is None:
        return None
    return next((file for file in workload_files(workload) if file.suffix in REQUEST_SUFFIXES), None)


def _check_budget(device: Device, gpus: int | None) -> None:
    if device.slots is not None and gpus is not None and gpus > device.slots.total:
        raise CliError(f"--gpus {gpus}: {device.slots.total} {device.slots.kind}s of the type {device.name} exist")

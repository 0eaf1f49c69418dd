"""Measures the profile with which `cornserve deploy` plans an app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cornserve.cli.console import CliError, stderr
from cornserve.cli.profiling import Profiling, ProfilingOptions, profiling_errors

if TYPE_CHECKING:
    from cornserve.app.graph import AppGraph
    from cornserve.cli.given_profile import GivenProfile
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.home import Home
    from cornserve_planner.model.document import ModelDocument
    from cornserve_planner.solve.budget import Budget


class MeasuredProfile(NamedTuple):
    """A profile of the options of an app.

    Args:
        slot_types: by option, the type of the slots on which it was measured, or None for any type.
    """

    file: Path
    slot_types: Mapping[str, str | None]


def measure_profile(
    client: Client,
    target: DeployTarget,
    graph: AppGraph,
    model: ModelDocument,
    workload: Path,
    budget: Budget,
    seconds: float,
    home: Home,
    given: GivenProfile | None,
) -> MeasuredProfile:
    """Measures the options whose results are missing or stale, and writes the planner's profile to the home.

    Args:
        budget: the limits of the plan.
        seconds: device time.
        given: a profile of options that are not measured.
    Raises:
        CliError, PlannerError: before an executor starts, if the slots or the device time do not suffice, or if the
            plan needs other GPUs than those of one measured type; later, if an option fails.
    """
    from cornserve.control.planning.input_checks import check_options
    from cornserve.profiler.app_measurement import PLAN_PRECISION

    missing = [*graph.options] if given is None else given.missing
    slot_types = {} if given is None else given.slot_types
    with profiling_errors():
        check_options(graph, missing)
        device_name = _device(missing, model, graph, slot_types)
        options = ProfilingOptions(home, PLAN_PRECISION, None, _chats(model, workload), missing, device_name)
        profiling = Profiling.of_target(client, target, options)
        measurement = profiling.measurement
        device = measurement.profiler.device
        device.check_plan(budget, "--gpus")
        if left := profiling.run(seconds):
            names = ", ".join(item.what for item in left)
            raise CliError(f"the budget did not suffice for {names}: increase --budget; finished measurements are kept")
        profile = measurement.profile(measurement.results)
        if given is not None:
            kept = (entry for entry in given.profile.options if entry.option not in missing)
            profile = given.profile.model_copy(update={"options": (*kept, *profile.options)})
        file = measurement.profiler.store.write_profile(target.name, device.name, profile.dump())
    stderr().print(f"profile: {file}", markup=False)
    return MeasuredProfile(file, {**dict.fromkeys(missing, device.slot_type), **slot_types})


def _device(
    missing: Iterable[str], model: ModelDocument, graph: AppGraph, given: Mapping[str, str | None]
) -> str | None:
    """Returns the type of GPUs or slots on which all missing options can be measured, or None for the first one.

    Args:
        given: by option, the types on which the other ones were measured.
    """
    types = sorted({gpu for name in missing if (gpu := model.options[name].gpu) is not None})
    if len(types) > 1:
        raise CliError(f"--options: names the GPU types {', '.join(types)}, but one type is measured: give --profile")
    for name in missing:
        if model.options[name].gpus != max(1, graph.options[name].gpus):
            raise CliError(f"--options: {name} is measured on the GPUs of its executor: give --profile, or remove gpus")
    known = {slot_type for slot_type in given.values() if slot_type is not None}
    return types[0] if types else min(known) if len(known) == 1 else None


def _chats(model: ModelDocument, workload: Path) -> Path | None:
    """Returns the workload's file of requests if the app takes chats."""
    from cornserve_planner.workload.document import REQUEST_SUFFIXES, workload_files

    if model.modalities is None:
        return None
    return next((file for file in workload_files(workload) if file.suffix in REQUEST_SUFFIXES), None)

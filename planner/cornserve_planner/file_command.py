"""`cornserve plan --adapt FILE` and `cornserve plan --check FILE`, which need a plan file instead of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cornserve_planner.command_uses import refuse_others
from cornserve_planner.errors import PlannerError
from cornserve_planner.terminal import parse_count, parse_settings, show, write_file

if TYPE_CHECKING:
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.workload.document import Workload


def run_on_file(context: typer.Context) -> None:
    """Adapts or checks the plan of a file. Raises `PlannerError` for parameters that do not apply."""
    given = context.params
    use = "adapt" if given["adapt"] is not None else "check"
    refuse_others(context, use, "which contains the plan")
    if use == "adapt":
        _adapt(given["adapt"], given["rate"], given["free"] or [], given["save"], json=given["json"])
    else:
        _check(given["check"], given["workload"], json=given["json"])


def _adapt(path: Path, rate: float | None, free: list[str], save: Path | None, *, json: bool) -> None:
    from cornserve_planner.file_report import adaptation_report
    from cornserve_planner.plan_adaptation import adapt_plan
    from cornserve_planner.plan_file.document import PlanFile

    if rate is None:
        raise PlannerError("--adapt: needs --rate, the requests/s to serve from now on")
    file = PlanFile.read(path)
    adapted = adapt_plan(file, rate, _free_gpus(file, free))
    show(adapted.as_document, lambda: adaptation_report(adapted), json=json)
    if save is not None:
        write_file(save, adapted.file.write)


def _check(path: Path, workload: Path | None, *, json: bool) -> None:
    from cornserve_planner.file_report import drift_report
    from cornserve_planner.plan_drift import check_drift
    from cornserve_planner.plan_file.document import PlanFile

    if workload is None:
        raise PlannerError("--check: needs --workload, a file with the new requests or shares")
    file = PlanFile.read(path)
    drift = check_drift(file, _workload(file, workload))
    show(drift.as_document, lambda: drift_report(drift), json=json)


def _workload(file: PlanFile, path: Path) -> Workload:
    from cornserve_planner.workload.document import REQUEST_SUFFIXES, read_workload, workload_files

    models = list(file.models.values())
    if len(models) > 1 and workload_files(path)[-1].suffix in REQUEST_SUFFIXES:
        raise PlannerError(
            f"--workload: {path.name} has requests, which do not name their model, but the plan serves "
            f"{', '.join(file.models)}: give the shares of its types"
        )
    return read_workload(path, models[0].modalities if len(models) == 1 else None)


def _free_gpus(file: PlanFile, settings: list[str]) -> dict[str, int] | None:
    if not settings:
        return None
    types = list(dict.fromkeys(name for cell in file.cells for name in cell.gpus_of))
    if len(types) == 1:
        settings = [setting if "=" in setting else f"{types[0]}={setting}" for setting in settings]
    return parse_settings("--free", "N, or TYPE=N for plans with several GPU types", settings, parse_count)

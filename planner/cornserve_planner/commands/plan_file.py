"""`cornserve plan adapt` and `cornserve plan check`, which need a plan file instead of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve_planner.terminal import parse_count, parse_settings, require_libraries, show, write_file

if TYPE_CHECKING:
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.workload.document import Workload

PlanPath = Annotated[Path, typer.Argument(metavar="FILE", help="A plan file, which `cornserve plan --save` writes.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def adapt(
    file: PlanPath,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Requests/s to serve from now on.")],
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free",
            metavar="[TYPE=]N",
            help="GPUs that are free while cells start. Default: those that the new plan needs in addition.",
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", dir_okay=False, help="Write the adapted plan to this file, as JSON.")
    ] = None,
    json: Json = False,
) -> None:
    """Change the running cells of a plan to serve another rate: which to start and stop, in order."""
    require_libraries()
    from cornserve_planner.adaptation.saved_plan import adapt_plan
    from cornserve_planner.files.output_file import check_output
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.report.file_report import adaptation_report

    if save is not None:
        check_output("--save", save)
    running = PlanFile.read(file)
    adapted = adapt_plan(running, rate, _free_gpus(running, free or []))
    show(adapted.as_document, lambda: adaptation_report(adapted), json=json)
    if save is not None:
        write_file(save, adapted.file.write)


def check(
    file: PlanPath,
    workload: Annotated[
        Path, typer.Option("--workload", help="File with the new shares of request types, or with requests.")
    ],
    json: Json = False,
) -> None:
    """Compute what a plan serves under another workload."""
    require_libraries()
    from cornserve_planner.adaptation.drift import check_drift
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.report.file_report import drift_report

    plan = PlanFile.read(file)
    drift = check_drift(plan, _workload(plan, workload))
    show(drift.as_document, lambda: drift_report(drift), json=json)


def _workload(file: PlanFile, path: Path) -> Workload:
    from cornserve_planner.workload.document import read_workload

    return read_workload(path, next(iter(file.models.values())).modalities)


def _free_gpus(file: PlanFile, settings: list[str]) -> dict[str, int] | None:
    if not settings:
        return None
    types = list(dict.fromkeys(name for cell in file.cells for name in cell.gpus_of))
    if len(types) == 1:
        settings = [setting if "=" in setting else f"{types[0]}={setting}" for setting in settings]
    return parse_settings("--free", "N, or TYPE=N for plans with several GPU types", settings, parse_count)

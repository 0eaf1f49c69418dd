"""`cornserve plan --model-rate MODEL=RATE`, which plans several models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from cornserve_planner.errors import PlannerError
from cornserve_planner.terminal import parse_count, parse_settings, show, write_file

if TYPE_CHECKING:
    from cornserve_planner.inputs.service_targets import ServiceTargets

USED = (
    *("model_rate", "gpus_of", "gpu_types", "utilization", "robust", "objective", "solver", "time_limit"),
    *("explain", "save", "json"),
)
"""The parameters of the command that apply to several models."""

FORM = "MODEL=RATE or MODEL,PROFILE,WORKLOAD=RATE, with requests/s"


def refuse_others(context: typer.Context) -> None:
    """Raises `PlannerError` for given parameters that do not apply to several models."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in USED and source is not None and source.name == "COMMANDLINE":
            shown = "MODEL" if name == "model" else f"--{name.replace('_', '-')}"
            raise PlannerError(
                f"{shown}: has no effect with --model-rate, which plans several models, each with its own rate: "
                "remove it"
            )


def run_joint(given: Mapping[str, Any], targets: ServiceTargets) -> None:
    """Plans the models of the command's parameters. Raises `PlannerError`."""
    from cornserve_planner.files.output_file import check_output
    from cornserve_planner.planning.joint_plan import JointRequest, ModelRate, plan_models
    from cornserve_planner.report.joint_report import joint_report

    rates = parse_settings("--model-rate", FORM, given["model_rate"], float)
    models = tuple(ModelRate.parse(setting, rate) for setting, rate in rates.items())
    save, explain = given["save"], given["explain"]
    if save is not None:
        check_output("--save", save)
    found = plan_models(
        JointRequest(
            models,
            gpus_of=parse_settings("--gpus-of", "TYPE=N, a type and a whole number", given["gpus_of"], parse_count),
            gpu_types=given["gpu_types"],
            objective=given["objective"],
            targets=targets,
            solver=given["solver"],
            time_limit=given["time_limit"],
            explain=explain,
        )
    )
    show(found.as_document, lambda: joint_report(found, everything=explain), json=given["json"])
    if save is not None:
        write_file(save, found.file.write)

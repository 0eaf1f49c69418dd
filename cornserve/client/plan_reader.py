"""Reads plan files. Needs the planner's dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cornserve.app.plan import AppPlan
from cornserve.app.step_limits import StepLimits
from cornserve.client.errors import DeployTargetError
from cornserve.task.errors import DefinitionError

NEEDED = 'reading plan files needs the planner: run pip install "cornserve[planner]"'


class ReadPlan(NamedTuple):
    """The plan of a file, and the limits of the engines' steps by deployment option."""

    plan: AppPlan
    limits: Mapping[str, StepLimits]


def read_plan(path: Path | str) -> ReadPlan:
    """Reads a plan file. Raises `DeployTargetError` if it is not a valid one, or cannot be deployed."""
    try:
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.plan_file.document import PlanFile
    except ImportError as error:
        raise DeployTargetError(f"{path}: {NEEDED}") from error
    try:
        file = PlanFile.read(Path(path))
    except PlannerError as error:
        raise DeployTargetError(str(error)) from error
    try:
        return ReadPlan(AppPlan.of(file.deployable()), file.step_limits)
    except (PlannerError, DefinitionError) as error:
        raise DeployTargetError(f"{path}: {error}") from error

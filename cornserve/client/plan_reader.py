"""Reads plan files. Needs the planner's dependencies."""

from __future__ import annotations

from pathlib import Path

from cornserve.app.plan import AppPlan
from cornserve.client.errors import DeployTargetError
from cornserve.task.errors import DefinitionError

NEEDED = 'reading plan files needs the planner: run pip install "cornserve[planner]"'


def read_plan(path: Path | str) -> AppPlan:
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
        return AppPlan.of(file.deployable())
    except (PlannerError, DefinitionError) as error:
        raise DeployTargetError(f"{path}: {error}") from error

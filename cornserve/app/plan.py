"""The plan of an app, with the limits of a deployment."""

from __future__ import annotations

import re
from typing import Final, Self

from pydantic import Field, ValidationError, model_validator

from cornserve.app.settings import GPU_TYPE_PATTERN
from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all
from cornserve_plan.fields import Name
from cornserve_plan.plan import Plan

MAX_PLAN_BYTES: Final = 128 * 1024
"""Maximum size of a plan as JSON. Records of apps and routes contain it."""

MAX_RUNNING_CELLS: Final = 64

MAX_CELL_REPLICAS: Final = 1024
"""Maximum number of replicas of an option in a cell."""


class AppPlan(Plan):
    """A plan that an app is deployed by. `cornserve deploy APP --plan FILE` and `cornserve scale` write it."""

    default_type: Name
    planned_from: str = Field(default="", max_length=12, pattern="^([0-9a-f]{12})?$")
    """The digest of the `planning` from which the controller has made the plan. Empty for a plan that users have made.
    """

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Returns a plan that was made of the app. Raises `DefinitionError` if apps cannot be deployed by it."""
        fields = plan.model_dump()
        if sum(plan.counts.values()) == 1:  # other apps may share the executors of a single cell
            fields["cells"] = [cell | {"is_shared": bool(cell["count"])} for cell in fields["cells"]]
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise DefinitionError(f"the plan: {describe_all(error.errors())}") from error

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        for name, option in self.options.items():
            if option.task is None:
                raise ValueError(
                    f"options.{name}.task: is not known: make the plan of an app, with `cornserve plan --from APP`"
                )
            if option.gpu_type is not None and not re.fullmatch(GPU_TYPE_PATTERN, option.gpu_type):
                raise ValueError(f"options.{name}.gpu_type: {option.gpu_type!r} is not a name of letters and digits")
        for index, cell in enumerate(self.cells):
            for name, count in cell.replicas.items():
                if count > MAX_CELL_REPLICAS:
                    raise ValueError(
                        f"cells.{index}.replicas.{name}: is {count}, but at most {MAX_CELL_REPLICAS} are allowed"
                    )
        running = sum(self.counts.values())
        if not 1 <= running <= MAX_RUNNING_CELLS:
            raise ValueError(f"cells: {running} cells run: set `count` so that 1 to {MAX_RUNNING_CELLS} run")
        size = len(self.model_dump_json(exclude_defaults=True).encode())
        if size > MAX_PLAN_BYTES:
            raise ValueError(
                f"the plan has {size} bytes as JSON: at most {MAX_PLAN_BYTES} are allowed, use fewer types"
            )
        return self

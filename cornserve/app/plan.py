"""The plan of an app: a plan with the limits of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from cornserve.app.settings import GpuTypeName
from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all
from cornserve_plan.fields import Fraction, Name, NonNegative
from cornserve_plan.plan import Plan, PlanCell, PlanInput, PlanOption, PlanPath, PlanStep, PlanType
from cornserve_policies.mixture import MAX_RUNNING_CELLS

MAX_PLAN_BYTES: Final = 128 * 1024
"""Maximum size of a plan as JSON. Records of apps and routes contain it."""

MAX_CELL_REPLICAS: Final = 1024
"""Maximum number of replicas of an option in a cell."""

_Names = Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]


class AppOption(PlanOption):
    """A deployment option. Options with equal tasks and settings share replicas."""

    task: Name
    """The name of the unit task's class."""
    settings: dict[str, JsonValue] = Field(max_length=64)
    """The fields of the unit task."""
    gpus: int = Field(ge=1, le=1024)
    """Number of GPUs of a replica; on a machine without GPUs, the number of CPU slots."""
    gpu_type: GpuTypeName | None = None
    """The type of these GPUs or slots. By default, any."""


class _AppStep(PlanStep):
    """A step of a path: an option, and the components that it runs here."""

    components: _Names
    """The components."""


class _AppPath(PlanPath):
    """A way to serve a request type: its steps in the order of the data."""

    steps: tuple[_AppStep, ...] = Field(min_length=1, max_length=64)
    """The steps."""


class _AppType(PlanType):
    """A request type: the requests that need the same components."""

    components: _Names
    """The components that its requests need."""
    paths: tuple[_AppPath, ...] = Field(min_length=1, max_length=64)
    """The ways to serve it."""


class AppCell(PlanCell):
    """A cell: replicas that serve requests together, independently of other cells."""

    gpus: int = Field(ge=1, le=1_000_000)
    """GPUs of the cell, which identify it in the plan."""
    count: int = Field(ge=0, le=MAX_RUNNING_CELLS)
    """The number of these cells that run."""
    is_shared: bool = False
    """Whether the first of these cells runs executors that other apps may share."""
    replicas: dict[Name, Annotated[int, Field(ge=1, le=MAX_CELL_REPLICAS)]] = Field(min_length=1, max_length=64)
    """The replicas of each option."""
    loads: dict[Name, NonNegative] = Field(max_length=64)
    """The replicas that each option would need at this rate if they could be divided."""
    probabilities: dict[Name, Annotated[tuple[Fraction, ...], Field(max_length=64)]] = Field(max_length=256)
    """The probability of each path, by request type. A type that the cell cannot serve is absent."""

    def with_count(self, count: int) -> Self:
        return self.model_copy(update={"count": count, "is_shared": self.is_shared and count > 0})


class AppPlan(Plan):
    """A plan that an app is deployed by. `cornserve deploy APP --plan FILE` and `cornserve scale` write it."""

    options: Mapping[Name, AppOption] = Field(min_length=1, max_length=64)
    """Deployment options, by name."""
    types: Mapping[Name, _AppType] = Field(min_length=1, max_length=256)
    """Request types, by name."""
    default_type: Name
    """The type by which requests are routed whose components are not those of any type."""
    cells: tuple[AppCell, ...] = Field(min_length=1, max_length=64)
    """The cells that run or that later changes of the load may start, smallest first."""
    inputs: tuple[PlanInput, ...] = Field(default=(), max_length=64)
    """The files from which the plan was made."""
    planned_from: str = Field(default="", max_length=12, pattern="^([0-9a-f]{12})?$")
    """The digest of the `planning` from which the controller has made the plan. Empty for a plan that users have made.
    """

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Returns the plan for a deployment. Raises `DefinitionError` if it exceeds the limits of a deployment."""
        fields = plan.model_dump()
        if sum(plan.counts.values()) == 1:  # other apps may share the executors of a single cell
            fields["cells"] = [cell | {"is_shared": bool(cell["count"])} for cell in fields["cells"]]
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise DefinitionError(f"the plan: {describe_all(error.errors())}") from error

    @model_validator(mode="after")
    def _check_deployment(self) -> Self:
        known: dict[frozenset[str], str] = {}
        for name, kind in self.types.items():
            other = known.setdefault(frozenset(kind.components), name)
            if other != name:
                raise ValueError(f"types.{name}.components: are those of {other!r}: remove one of them")
        for index, cell in enumerate(self.cells):
            if self.default_type not in cell.probabilities:
                raise ValueError(
                    f"cells.{index}.probabilities: have no paths for the default type {self.default_type!r}: add them"
                )
        running = sum(self.counts.values())
        if not 1 <= running <= MAX_RUNNING_CELLS:
            raise ValueError(f"cells: {running} cells run: set `count` so that 1 to {MAX_RUNNING_CELLS} run")
        shared = [cell for cell in self.cells if cell.is_shared]
        if len(shared) > 1 or not all(cell.count for cell in shared):
            raise ValueError("cells: `is_shared` is set for several cells or for one that does not run: remove it")
        size = len(self.model_dump_json(exclude_defaults=True).encode())
        if size > MAX_PLAN_BYTES:
            raise ValueError(
                f"the plan has {size} bytes as JSON: at most {MAX_PLAN_BYTES} are allowed, use fewer types"
            )
        return self

    @property
    def is_one_shared_cell(self) -> bool:
        """Whether one cell runs, whose executors other apps may share. Its replicas are not placed together."""
        return [name for name, _ in self.running_cells] == [""]

    @property
    def running_cells(self) -> list[tuple[str, AppCell]]:
        """All running cells with their names: GPUs and number, or an empty name for the shared one."""
        return [
            ("" if cell.is_shared and number == 0 else f"{cell.gpus}-{number}", cell)
            for cell in self.cells
            for number in range(cell.count)
        ]

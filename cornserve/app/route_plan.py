"""The part of a route that follows from a plan: cells, request types and path probabilities [C §5.3]."""

from __future__ import annotations

from typing import Annotated, Self

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cornserve_plan.fields import Binding
from cornserve_policies.path_table import PathTable, RoutableCell
from cornserve_policies.replayable_random import check_weights

Probability = Annotated[float, Ge(0), Le(1)]


class RouteCell(BaseModel):
    """A running cell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The name of the cell among those of the app, such as `4-0`: its GPUs and its number. Empty if the app has one
    cell, whose executors other apps may share."""
    rate: Annotated[float, Gt(0)]
    """Requests per second for which the cell is planned. The gateway draws cells in proportion to it."""
    replicas: dict[str, int]
    """The replicas of each executor, by the executor's key."""
    groups: dict[str, str]
    """The executor group that runs each executor in this cell, by the executor's key."""
    probabilities: dict[str, list[Probability]]
    """The probability of each path of the app, by request type. A type that the cell cannot serve is absent."""


class RoutePlan(BaseModel):
    """The plan by which an app is routed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    types: dict[str, list[str]]
    """The components of each request type."""
    default_type: str
    """The type by which requests are routed whose components are not those of any type."""
    cells: Annotated[list[RouteCell], Field(min_length=1)]
    executors: dict[str, str] = Field(default_factory=dict)
    """The key of each deployment option's executor, by the option's name."""
    bindings: dict[str, list[dict[str, Binding]]] = Field(default_factory=dict)
    """The binding of invocations by the executor's key, for each path of the app, by request type. Types, paths and
    executors without one have that of the app's policies."""

    @property
    def options(self) -> dict[str, str]:
        """The deployment option of each executor, or several, joined by commas, by the executor's key."""
        names: dict[str, list[str]] = {}
        for option, key in self.executors.items():
            names.setdefault(key, []).append(option)
        return {key: ",".join(options) for key, options in names.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for cell in self.cells:
            for probabilities in cell.probabilities.values():
                check_weights(probabilities)
        self.path_table()
        return self

    def path_table(self) -> PathTable:
        """Returns the table by which cells and paths are chosen."""
        cells = [RoutableCell(cell.name, cell.rate, cell.probabilities) for cell in self.cells]
        return PathTable(self.types, self.default_type, cells)

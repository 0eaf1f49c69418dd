"""Types of fields of plans."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cornserve_plan.printable import require_printable

MAX_COUNT: Final = 10**18
"""Limit of counts: their products remain in the range of floats."""


def _check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{name!r} is given twice: remove one of them")
    return names


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(require_printable)]
Names = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_check_distinct)]
Fraction = Annotated[float, Ge(0), Le(1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Count = Annotated[int, Ge(0), Le(MAX_COUNT)]
PositiveCount = Annotated[int, Ge(1), Le(MAX_COUNT)]
Binding = Literal["early", "late"]
"""When the replica of an invocation is selected: see `binding` of the app's policies."""


class PlanPart(BaseModel):
    """Base class of the parts of a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

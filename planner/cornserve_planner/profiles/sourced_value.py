"""A value with its unit, tag and source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cornserve_planner.files.document import DocumentPart

Tag = Literal["measured", "published", "predicted"]
"""Measured by the user, published by others, or predicted from a hardware model."""

Unit = Literal["requests/s", "tokens/s", "seconds", "bytes", "bytes/s", "flops/s", "dollars", "dollars/hour"]
"""Units without prefixes, so that GB or ms cannot be mistaken for bytes or seconds."""


class SourcedValue(DocumentPart):
    value: Annotated[float, Field(gt=0)]
    unit: Unit
    tag: Tag
    source: Annotated[str, Field(min_length=1)]
    """Paper and table, command and machine of the measurement, or predictor and assumptions."""


def _in(unit: Unit) -> AfterValidator:
    def check(figure: SourcedValue) -> SourcedValue:
        if figure.unit != unit:
            raise ValueError(f"must be in {unit}, not in {figure.unit}")
        return figure

    return AfterValidator(check)


Rate = Annotated[SourcedValue, _in("requests/s")]
Duration = Annotated[SourcedValue, _in("seconds")]
Size = Annotated[SourcedValue, _in("bytes")]
Bandwidth = Annotated[SourcedValue, _in("bytes/s")]
Compute = Annotated[SourcedValue, _in("flops/s")]
HourlyPrice = Annotated[SourcedValue, _in("dollars/hour")]
PurchasePrice = Annotated[SourcedValue, _in("dollars")]

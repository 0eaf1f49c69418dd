"""Values that papers print other than the rates of single options: whole deployments, phases, transfers, loading."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import Field

from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import Name
from cornserve_planner.profiles.sourced_value import SourcedValue

Paper = Literal["C", "D", "H", "M", "T"]


class PublishedFigure(DocumentPart):
    """
    Args:
        where: table, figure or section.
        what: a text that distinguishes the values of one table.
        gpus: number of GPUs by type.
        requests: a text that describes their sizes.
        note: restrictions and contradictions.
    """

    paper: Paper
    where: Annotated[str, Field(min_length=1)]
    what: Annotated[str, Field(min_length=1)]
    model: Name | None = None
    gpus: dict[Name, Annotated[int, Field(ge=1)]] = Field(default={})
    requests: str = ""
    figure: SourcedValue
    note: str = ""


class PublishedFigures(Document):
    """`format: cornserve-planner/published`."""

    kind = "published"

    papers: dict[Paper, str]
    figures: tuple[PublishedFigure, ...]

    @classmethod
    def shipped(cls) -> Self:
        return cls.read_shipped(files("benchmarks.reproduction") / "published.yaml")

    def from_paper(self, paper: Paper, where: str) -> tuple[PublishedFigure, ...]:
        return tuple(figure for figure in self.figures if (figure.paper, figure.where) == (paper, where))

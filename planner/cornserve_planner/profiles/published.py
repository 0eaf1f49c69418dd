"""What papers print beyond the rates of single options: whole deployments, phases of a request, transfers, loading."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import Field

from cornserve_planner.document import Document, Part
from cornserve_planner.model import Name
from cornserve_planner.profiles.figure import Figure

Paper = Literal["C", "D", "H", "M", "T"]


class PublishedFigure(Part):
    """
    Args:
        where: table, figure or section.
        what: in words; figures of one table are told apart by it.
        gpus: type to count.
        requests: their sizes, in words.
        note: what has to be known to use it, contradictions included.
    """

    paper: Paper
    where: Annotated[str, Field(min_length=1)]
    what: Annotated[str, Field(min_length=1)]
    model: Name | None = None
    gpus: dict[Name, Annotated[int, Field(ge=1)]] = Field(default={})
    requests: str = ""
    figure: Figure
    note: str = ""


class PublishedFigures(Document):
    """`format: cornserve-planner/published`."""

    kind = "published"

    papers: dict[Paper, str]
    figures: tuple[PublishedFigure, ...]

    @classmethod
    def shipped(cls) -> Self:
        return cls.read_shipped(files("cornserve_planner.profiles") / "data/published.yaml")

    def of(self, paper: Paper, where: str) -> tuple[PublishedFigure, ...]:
        return tuple(it for it in self.figures if (it.paper, it.where) == (paper, where))

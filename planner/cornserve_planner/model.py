"""The document that describes a model: components, deployment options and paths."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from cornserve_planner.document import Document, DocumentPart
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import DeploymentOption, ExecutorGraph, ModelComponent, Path
from cornserve_planner.workload.request_types import Modalities

Name = Annotated[str, Field(min_length=1, max_length=100)]


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{name!r} is given twice")
    return names


Components = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_each_once)]
"""Names of a model's, in no order, each once."""


class ComponentEntry(DocumentPart):
    """`after`: the components whose output this one takes."""

    after: tuple[Name, ...] = ()


class OptionEntry(DocumentPart):
    """`gpu` names the GPU type that a replica's GPUs are of; without it, any."""

    components: tuple[Name, ...] = Field(min_length=1)
    gpus: int = Field(default=1, ge=1)
    gpu: Name | None = None


class ModelDocument(Document):
    """`format: cornserve-planner/model`.

    components:
      encoder: {}
      llm: {after: [encoder]}
    options:
      E: {components: [encoder]}
      EL: {components: [encoder, llm], gpus: 2}
    paths:
      - [EL]
      - [E, EL]
    modalities: # optional: what requests of a file need
      always: [llm]
      inputs: {image: [encoder]}
    """

    kind = "model"

    name: Name
    description: str = ""
    components: dict[Name, ComponentEntry] = Field(min_length=1)
    options: dict[Name, OptionEntry] = Field(min_length=1)
    paths: tuple[tuple[Name, ...], ...] = Field(min_length=1)
    modalities: Modalities | None = None

    def graph(self) -> ExecutorGraph:
        """Raises `InvalidInputError`, as `read` and `parse` have done before."""
        return ExecutorGraph(
            components=tuple(ModelComponent(name, entry.after) for name, entry in self.components.items()),
            options=tuple(
                DeploymentOption(name, entry.components, entry.gpus, entry.gpu) for name, entry in self.options.items()
            ),
            paths=tuple(Path(options) for options in self.paths),
        )

    def model_post_init(self, _: object) -> None:
        self.graph()
        if self.modalities is not None and (unknown := self.modalities.components - self.components.keys()):
            raise InvalidInputError("modalities", f"{', '.join(sorted(unknown))}: not a component of the model")

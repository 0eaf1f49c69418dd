"""The file that describes a model: components, deployment options and paths."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from cornserve_planner.document import Document, DocumentPart
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import DeclaredPath, DeploymentOption, ExecutorGraph, ModelComponent
from cornserve_planner.workload.request_types import Modalities

Name = Annotated[str, Field(min_length=1, max_length=100)]


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{name!r} is given twice: remove one of them")
    return names


Components = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_each_once)]
"""Distinct names of components; the order has no meaning."""


class ComponentEntry(DocumentPart):
    """A component. `after` names the components whose output it consumes."""

    after: tuple[Name, ...] = ()


class OptionEntry(DocumentPart):
    """A deployment option. `gpu` is the GPU type of its replicas; None for any type."""

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
    modalities: # optional: the components that each modality of a request needs
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
        """Returns the executor graph, which was validated when the document was parsed."""
        return ExecutorGraph(
            components=tuple(ModelComponent(name, entry.after) for name, entry in self.components.items()),
            options=tuple(
                DeploymentOption(name, entry.components, entry.gpus, entry.gpu) for name, entry in self.options.items()
            ),
            paths=tuple(DeclaredPath(options) for options in self.paths),
        )

    def model_post_init(self, _: object) -> None:
        self.graph()
        if self.modalities is not None and (unknown := self.modalities.components - self.components.keys()):
            raise InvalidInputError(
                "modalities",
                f"{', '.join(sorted(unknown))}: not a component of the model, which has {', '.join(self.components)}",
            )

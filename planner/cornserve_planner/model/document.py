"""The file that describes a model: components, deployment options and paths."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, Field, JsonValue, model_validator

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.graph import DeclaredPath, DeploymentOption, ExecutorGraph, ModelComponent
from cornserve_planner.model.request_types import Modalities

Name = Annotated[str, Field(min_length=1, max_length=100)]
GpuCount = Annotated[int, Field(ge=1)]


Entry = TypeVar("Entry", str, int)


def _each_once(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    for index, entry in enumerate(entries):
        if entry in entries[:index]:
            raise ValueError(f"{entry!r} is given twice: remove one of them")
    return entries


Components = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_each_once)]
"""Distinct names of components; the order has no meaning."""


class ComponentEntry(DocumentPart):
    """A component. `after` names the components whose output it consumes."""

    after: tuple[Name, ...] = ()


class ExecutorTask(DocumentPart):
    """The unit task of an option's executor, and its settings. Options with equal executors share replicas."""

    task: Name
    settings: dict[Name, JsonValue]


class OptionEntry(DocumentPart):
    """A deployment option.

    Args:
        gpus: GPUs of a replica.
        tensor_parallel: numbers of GPUs of a replica from which the planner chooses, instead of `gpus`.
        gpu: the GPU type of its replicas; None for any type.
        executor: the unit task of its executor, if known.
    """

    components: tuple[Name, ...] = Field(min_length=1)
    gpus: GpuCount = 1
    tensor_parallel: Annotated[tuple[GpuCount, ...], AfterValidator(_each_once)] = ()
    gpu: Name | None = None
    executor: ExecutorTask | None = None

    @model_validator(mode="after")
    def _check_gpus(self) -> Self:
        if self.tensor_parallel and "gpus" in self.model_fields_set:
            raise ValueError("gives both gpus and tensor_parallel: remove one of them")
        return self

    def variants(self, name: str) -> tuple[DeploymentOption, ...]:
        """Returns the option, or an option `NAME-tpN` for each of the numbers of GPUs to choose from."""
        if not self.tensor_parallel:
            return (DeploymentOption(name, self.components, self.gpus, self.gpu),)
        return tuple(
            DeploymentOption(f"{name}-tp{count}", self.components, count, self.gpu, variant_of=name)
            for count in self.tensor_parallel
        )


class ModelDocument(Document):
    """`format: cornserve-planner/model`.

    components:
      encoder: {}
      llm: {after: [encoder]}
    options:
      E: {components: [encoder]}
      EL: {components: [encoder, llm], tensor_parallel: [2, 4]}
    paths:
      - [EL]
      - [E, EL]
    modalities: # optional: the components that each modality of a request needs
      always: [llm]
      inputs: {image: [encoder]}
    types: # optional: the components of the request types that must have a path, also if the workload lacks them
      text: [llm]
      image: [encoder, llm]
    """

    kind = "model"

    name: Name
    description: str = ""
    components: dict[Name, ComponentEntry] = Field(min_length=1)
    options: dict[Name, OptionEntry] = Field(min_length=1)
    paths: tuple[tuple[Name, ...], ...] = Field(min_length=1)
    modalities: Modalities | None = None
    types: dict[Name, Components] = Field(default={})

    def graph(self) -> ExecutorGraph:
        """Returns the executor graph, which was validated when the document was parsed."""
        variants = {name: entry.variants(name) for name, entry in self.options.items()}
        names = {name: tuple(option.name for option in options) for name, options in variants.items()}
        return ExecutorGraph(
            components=tuple(ModelComponent(name, entry.after) for name, entry in self.components.items()),
            options=tuple(option for options in variants.values() for option in options),
            paths=tuple(
                DeclaredPath(options)
                for path in self.paths
                for options in product(*(names.get(name, (name,)) for name in path))
            ),
        )

    def model_post_init(self, _: object) -> None:
        self.graph()
        for name, components in self.types.items():
            self._check_components(f"types.{name}", components)
        if self.modalities is not None:
            self._check_components("modalities", self.modalities.components)

    def _check_components(self, field: str, components: Iterable[str]) -> None:
        if unknown := set(components) - self.components.keys():
            raise InvalidInputError(
                field,
                f"{', '.join(sorted(unknown))}: not a component of the model, which has {', '.join(self.components)}",
            )

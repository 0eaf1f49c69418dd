"""The parts of a plan file. All fields are required, so that a file without a field never means a default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from cornserve_plan.fields import Binding, Name, NonNegative, Positive, PositiveCount
from cornserve_plan.plan import Plan, PlanCell, PlanInput, PlanOption, PlanPath, PlanStep, PlanType
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import Components
from cornserve_planner.model.request_types import Modalities
from cornserve_planner.model.solution import Objective
from cornserve_planner.profiles.sourced_value import SourcedValue, Tag
from cornserve_planner.requests.request import Modality

InputKind = Literal["model", "profile", "workload", "gpu types"]

ANY_GPU = "any"
"""Stands for the GPU type of options that run on any type, in numbers of GPUs by type."""


class PlannedModalities(Modalities):
    """The modalities of a model file, with all fields."""

    always: tuple[str, ...]
    inputs: dict[Modality, tuple[str, ...]]
    outputs: dict[Modality, tuple[str, ...]]


class PlannedModel(DocumentPart):
    """A model that the plan serves.

    Args:
        modalities: the components that each modality of a request needs. None if the model file does not list them.
    """

    modalities: PlannedModalities | None


class PlannedComponent(DocumentPart):
    """A component. `after` names the components whose output it consumes."""

    after: tuple[Name, ...]


class PlannedGpuType(DocumentPart):
    """A GPU type: bytes of memory and dollars per hour of one GPU; None if unknown."""

    memory: Positive | None
    price: Positive | None


class PlannedLimits(DocumentPart):
    """The limits of an engine's steps, with vLLM's names."""

    max_num_batched_tokens: PositiveCount
    max_num_seqs: PositiveCount


class PlannedOption(DocumentPart, PlanOption):
    """A deployment option.

    Args:
        components: those that a replica can run.
        batch: requests that a replica serves at a time; None if the profile has no batch sizes.
        memory: bytes needed on each of its GPUs; None if unknown.
        max_utilization: the fraction of its replicas' time that the plan may use.
        startup: seconds until a replica accepts requests; None if unknown.
        limits: the limits with which the plan meets its latency targets; None without targets or a step model.
    """

    task: Name | None
    settings: dict[str, JsonValue]
    gpu_type: Name | None
    components: Components
    batch: PositiveCount | None
    memory: NonNegative | None
    max_utilization: Annotated[float, Field(gt=0, le=1)]
    startup: NonNegative | None
    limits: PlannedLimits | None


class PlannedStep(DocumentPart, PlanStep):
    """A step of a path.

    Args:
        seconds: seconds of a replica's time that a request needs, with the confidence interval from `low` to `high`.
        tag: that of the least certain rate from which the seconds follow.
    """

    binding: Binding | None
    seconds: Positive
    low: Positive
    high: Positive
    tag: Tag


class PlannedPath(DocumentPart, PlanPath):
    """A path, without options that the type skips."""

    steps: tuple[PlannedStep, ...] = Field(min_length=1)


class PlannedType(DocumentPart, PlanType):
    """A request type of a model. A type with share 0 is not in the workload, but has a route."""

    model: Name
    paths: tuple[PlannedPath, ...] = Field(min_length=1)


class PlannedCell(DocumentPart, PlanCell):
    """A cell, or a plan without cells. The fields from `objective` on are those of `Solution`.

    Args:
        kept: whether the cell serves more than smaller cells on the same number of GPUs.
        gpus_of: GPUs of the cell by type, including idle ones.
        idle: GPUs by type that no replica uses.
        dollars: price per hour of these GPUs; None if a price is unknown.
        rate_after_loss: maximum requests per second after the loss of any one replica; None if the plan is not made for
            losses.
    """

    kept: bool
    gpus_of: Annotated[dict[Name, PositiveCount], Field(min_length=1)]
    idle: dict[Name, PositiveCount]
    dollars: NonNegative | None
    rate_after_loss: Positive | None
    objective: Objective
    value: Positive
    bound: Positive
    relaxation: Positive
    proven: bool
    ties_settled: bool
    solver: Literal["highs", "cbc"]
    solve_seconds: NonNegative


class PlannedInput(DocumentPart, PlanInput):
    """A file from which the plan was made. `shipped` files are part of the planner."""

    kind: InputKind
    shipped: bool


class KnownRate(SourcedValue):
    """A rate of the profile that the plan uses, with its option."""

    option: Name


class Provenance(DocumentPart):
    """Further inputs of a plan.

    Args:
        rates: the rates of the profile that the plan uses.
        factors: assumed colocation factors by option (`--factor`).
        options: the options of the command.
    """

    rates: tuple[KnownRate, ...]
    factors: dict[Name, Positive]
    options: dict[Name, JsonValue]


class PlanFields(Document, Plan):
    """The fields of a plan file.

    Args:
        cells: all cells of the search that serve requests, smallest first; a single one for a plan without cells.
        target: requested requests per second; None for a budget.
    """

    models: Annotated[dict[Name, PlannedModel], Field(min_length=1, max_length=1)]
    components: Annotated[dict[Name, PlannedComponent], Field(min_length=1)]
    gpu_types: dict[Name, PlannedGpuType]
    options: Annotated[dict[Name, PlannedOption], Field(min_length=1)]
    types: Annotated[dict[Name, PlannedType], Field(min_length=1)]
    cells: Annotated[tuple[PlannedCell, ...], Field(min_length=1)]
    target: NonNegative | None
    inputs: Annotated[tuple[PlannedInput, ...], Field(min_length=1)]
    provenance: Provenance


def gpus_by_type(options: Mapping[str, PlannedOption], replicas: Mapping[str, int]) -> dict[str, int]:
    """Returns the GPUs of replicas by type."""
    gpus: dict[str, int] = {}
    for name, count in replicas.items():
        kind = options[name].gpu_type or ANY_GPU
        gpus[kind] = gpus.get(kind, 0) + options[name].gpus * count
    return gpus


def hourly_price(gpu_types: Mapping[str, PlannedGpuType], gpus: Mapping[str, float]) -> float | None:
    """Returns the dollars per hour of GPUs by type; None if a price is unknown."""
    prices = [(gpu_types[name].price if name in gpu_types else None, count) for name, count in gpus.items()]
    costs = [price * count for price, count in prices if price is not None]
    return math.fsum(costs) if len(costs) == len(prices) else None


def mean_seconds(types: Mapping[str, PlannedType], probabilities: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns, by option, the seconds of a replica's time that the mean request needs in a cell."""
    seconds: dict[str, float] = {}
    for name, kind in types.items():
        for path, probability in zip(kind.paths, probabilities.get(name, ()), strict=False):
            if weight := kind.share * probability:
                for step in path.steps:
                    seconds[step.option] = seconds.get(step.option, 0.0) + weight * step.seconds
    return seconds


def loads(
    options: Mapping[str, PlannedOption], replicas: Mapping[str, int], rate: float, seconds: Mapping[str, float]
) -> dict[str, float]:
    """Returns the replicas of each option that a cell needs at its rate, with the planned headroom.

    Args:
        seconds: by option, the seconds of a replica's time that the mean request needs.
    """
    return {
        name: min(rate * seconds.get(name, 0.0) / options[name].max_utilization, float(count))
        for name, count in replicas.items()
    }


def largest_loss(cells: Iterable[PlannedCell]) -> float:
    """Returns the most requests per second that the loss of a replica costs, in plans that are made for losses."""
    losses = (cell.rate - cell.rate_after_loss for cell in cells if cell.rate_after_loss is not None)
    return max(losses, default=0.0)

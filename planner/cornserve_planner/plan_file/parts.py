"""The parts of a plan file. All fields are required, so that a file without a field never means a default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from cornserve_planner.document import Document, DocumentPart
from cornserve_planner.model_document import Components, ExecutorTask, Name
from cornserve_planner.plan import NonNegative, Objective
from cornserve_planner.profiles.sourced_value import SourcedValue, Tag
from cornserve_planner.workload.request import Modality
from cornserve_planner.workload.request_types import Modalities

Positive = Annotated[float, Field(gt=0)]
MOST = 10**18
"""Limit of counts: their products remain in the range of floats."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Some = Annotated[int, Field(ge=1, le=MOST)]
Fraction = Annotated[float, Field(ge=0, le=1)]

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
        modalities: the components that each modality of a request needs, from which a gateway computes the type of a
            request. None if the model file does not list them.
        default_type: the type of requests whose components are not those of any type; None to refuse them.
    """

    modalities: PlannedModalities | None
    default_type: Name | None


class PlannedComponent(DocumentPart):
    """A component. `after` names the components whose output it consumes."""

    after: tuple[Name, ...]


class PlannedGpuType(DocumentPart):
    """A GPU type: bytes of memory and dollars per hour of one GPU; None if unknown."""

    memory: Positive | None
    price: Positive | None


class PlannedOption(DocumentPart):
    """A deployment option.

    Args:
        executor: the unit task and its settings, for plans made from an app.
        gpu: the GPU type; None for any type.
        gpus: GPUs of a replica.
        batch: requests that a replica serves at a time; None if the profile has no batch sizes.
        memory: bytes needed on each of these GPUs; None if unknown.
        max_utilization: the fraction of its replicas' time that the plan may use.
        startup: seconds until a replica accepts requests; None if unknown.
    """

    components: Components
    executor: ExecutorTask | None
    gpu: Name | None
    gpus: Some
    batch: Some | None
    memory: NonNegative | None
    max_utilization: Annotated[float, Field(gt=0, le=1)]
    startup: NonNegative | None


class PlannedStep(DocumentPart):
    """A step of a path.

    Args:
        components: those that the option runs here.
        seconds: seconds of a replica's time that a request needs, with the confidence interval from `low` to `high`.
        tag: that of the least certain rate from which the seconds follow.
    """

    option: Name
    components: Components
    seconds: Positive
    low: Positive
    high: Positive
    tag: Tag


class PlannedPath(DocumentPart):
    """A path: its steps in the order of the data, without options that the type skips."""

    steps: tuple[PlannedStep, ...] = Field(min_length=1)


class PlannedType(DocumentPart):
    """A request type of a model. A type with share 0 is not in the workload, but has a route."""

    model: Name
    components: Components
    share: Fraction
    paths: tuple[PlannedPath, ...] = Field(min_length=1)


class PlannedCluster(DocumentPart):
    """Nodes and the network between them.

    Args:
        gpus: GPUs of each node.
        bandwidth: bytes/s from each node to each other node.
    """

    gpus: Annotated[tuple[Some, ...], Field(min_length=1)]
    bandwidth: Positive


class PlannedCell(DocumentPart):
    """A cell, or a plan without cells. The fields from `objective` on are those of `Plan`.

    Args:
        count: the number of these cells that run.
        kept: whether the cell serves more than smaller cells on the same number of GPUs.
        gpus: GPUs of the cell by type, including idle ones.
        idle: GPUs by type that no replica uses.
        dollars: price per hour of these GPUs; None if a price is unknown.
        rate: maximum requests per second that the replicas serve.
        rate_after_loss: maximum requests per second after the loss of any one replica; None if the plan is not made for
            losses.
        placement: the replicas on each node of the cluster, by option; None without a cluster.
        probabilities: by type, the probability of each of its paths, in order. Empty if the cell cannot serve the
            type.
    """

    count: Count
    kept: bool
    gpus: Annotated[dict[Name, Some], Field(min_length=1)]
    idle: dict[Name, Some]
    dollars: NonNegative | None
    rate: Positive
    rate_after_loss: Positive | None
    replicas: Annotated[dict[Name, Some], Field(min_length=1)]
    placement: tuple[dict[Name, Some], ...] | None
    probabilities: dict[Name, tuple[Fraction, ...]]
    objective: Objective
    value: Positive
    bound: Positive
    relaxation: Positive
    proven: bool
    ties_settled: bool
    solver: Literal["highs", "cbc"]
    solve_seconds: NonNegative

    @property
    def size(self) -> int:
        """GPUs of all types, which identifies the cell."""
        return sum(self.gpus.values())


class InputFile(DocumentPart):
    """A file from which the plan was made. `shipped` files are part of the planner."""

    kind: InputKind
    file: Name
    shipped: bool
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class KnownRate(SourcedValue):
    """A rate of the profile that the plan uses, with its option."""

    option: Name


class Provenance(DocumentPart):
    """The inputs of a plan.

    Args:
        factors: assumed colocation factors by option (`--factor`).
        options: the options of the command.
        planner: version of the planner.
    """

    inputs: Annotated[tuple[InputFile, ...], Field(min_length=1)]
    rates: tuple[KnownRate, ...]
    factors: dict[Name, Positive]
    options: dict[Name, JsonValue]
    planner: Name


class PlanFields(Document):
    """The fields of a plan file.

    Args:
        types: request types by name; their shares add up to 1.
        cluster: nodes of a plan with placement; None for other plans.
        cells: all cells of the search that serve requests, smallest first; a single one for a plan without cells.
        rate: requests per second that all running cells serve together.
        gpus: GPUs of all running cells by type, including idle ones.
        dollars: price per hour of these GPUs; None if a price is unknown.
        target: requested requests per second; None for a budget.
    """

    models: Annotated[dict[Name, PlannedModel], Field(min_length=1)]
    components: Annotated[dict[Name, PlannedComponent], Field(min_length=1)]
    gpu_types: dict[Name, PlannedGpuType]
    options: Annotated[dict[Name, PlannedOption], Field(min_length=1)]
    types: Annotated[dict[Name, PlannedType], Field(min_length=1)]
    cluster: PlannedCluster | None
    cells: Annotated[tuple[PlannedCell, ...], Field(min_length=1)]
    rate: NonNegative
    gpus: dict[Name, Some]
    dollars: NonNegative | None
    target: NonNegative | None
    provenance: Provenance


def gpus_by_type(options: Mapping[str, PlannedOption], replicas: Mapping[str, int]) -> dict[str, int]:
    """Returns the GPUs of replicas by type."""
    gpus: dict[str, int] = {}
    for name, count in replicas.items():
        kind = options[name].gpu or ANY_GPU
        gpus[kind] = gpus.get(kind, 0) + options[name].gpus * count
    return gpus


def hourly_price(gpu_types: Mapping[str, PlannedGpuType], gpus: Mapping[str, int]) -> float | None:
    """Returns the dollars per hour of GPUs by type; None if a price is unknown."""
    prices = [(gpu_types[name].price if name in gpu_types else None, count) for name, count in gpus.items()]
    costs = [price * count for price, count in prices if price is not None]
    return math.fsum(costs) if len(costs) == len(prices) else None


def largest_loss(cells: Iterable[PlannedCell]) -> float:
    """Returns the most requests per second that the loss of a replica costs, in plans that are made for losses."""
    losses = (cell.rate - cell.rate_after_loss for cell in cells if cell.rate_after_loss is not None)
    return max(losses, default=0.0)


def totals(cells: Iterable[PlannedCell]) -> dict[str, Any]:
    """Returns the fields `rate`, `gpus` and `dollars` of all running cells."""
    running = [cell for cell in cells if cell.count]
    gpus: dict[str, int] = {}
    for cell in running:
        for name, each in cell.gpus.items():
            gpus[name] = gpus.get(name, 0) + cell.count * each
    prices = [cell.count * cell.dollars for cell in running if cell.dollars is not None]
    return {
        "rate": math.fsum(cell.count * cell.rate for cell in running),
        "gpus": gpus,
        "dollars": math.fsum(prices) if len(prices) == len(running) else None,
    }

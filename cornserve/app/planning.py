"""The inputs from which the plan of an app is made: a budget, a workload and a profile."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from json import dumps
from math import fsum
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from cornserve.app.plan import AppPlan
from cornserve.app.settings import GpuTypeName
from cornserve.app.spec_rules import SpecModel, SpecRule, exactly_one
from cornserve_plan.fields import Fraction, Name, NonNegative, Positive
from cornserve_plan.plan import SHARES_TOLERANCE

MAX_PLANNING_BYTES = 128 * 1024
"""Maximum size of the inputs as JSON. Records of apps contain them."""


def _with_whole_numbers(value: JsonValue) -> JsonValue:
    """Returns the value with integers for floats such as 3.0: Kubernetes stores both in the same way."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_whole_numbers(each) for name, each in value.items()}
        case list():
            return [_with_whole_numbers(each) for each in value]
        case _:
            return value


GpuCount = Annotated[int, Field(ge=1, le=1_000_000)]
"""A number of GPUs or slots."""


class WorkloadType(SpecModel):
    """A request type of the workload."""

    components: list[Name] = Field(min_length=1, max_length=64)
    """The components that its requests need."""
    share: Fraction
    """The share of all requests."""
    sizes: dict[Name, NonNegative] = Field(default_factory=dict, max_length=16)
    """The mean sizes of its requests, such as `image_pixels`, as far as they are known."""
    frequency: dict[Name, Positive] = Field(default_factory=dict, max_length=64)
    """Runs of a component by the mean request, if not 1: for components that run only after a value has arrived."""


class PlanningInputs(SpecModel):
    """The inputs of a plan: exactly one of `gpus`, `gpus_of` and `rate`, the workload, and the profile.

    From them, the controller makes the plan of an app without a plan, and another one when the mix of the request types
    has shifted. It measures a missing profile first.
    """

    gpus: GpuCount | None = None
    """The number of GPUs or slots on which the plan serves the most requests."""
    gpus_of: dict[GpuTypeName, GpuCount] | None = Field(default=None, min_length=1, max_length=64)
    """The numbers of GPUs or slots by type on which the plan serves the most requests."""
    rate: Positive | None = None
    """The requests per second that the plan serves on the fewest GPUs or slots."""
    objective: Literal["gpus", "dollars", "goodput"] | None = None
    """The cost of the plan for `rate` that is minimized. By default, GPUs, or dollars if there are several GPU types,
    whose numbers cannot be added. For a number of GPUs: `goodput`, the most requests per second that meet the latency
    targets of the app's policies, which is the default with targets."""
    utilization: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The fraction of the replicas' time that the plan uses at most. The rest is headroom."""
    percentile: Annotated[float, Field(gt=0, lt=100)] = 95.0
    """The percentage of the requests that meet the targets of the app's policies in the simulations of a plan."""
    survive: bool = False
    """Whether the plan still serves its rate after the loss of any one replica."""
    gpu_types: dict[Name, GpuTypeName] = Field(default_factory=dict, max_length=64)
    """The types of GPUs or slots of the app's options, by name. By default, those of the profile."""
    gpu_counts: dict[Name, Annotated[int, Field(ge=1, le=1024)]] = Field(default_factory=dict, max_length=64)
    """The numbers of GPUs of a replica of the app's options, by name, for executors that state none. The profile must
    have entries with these numbers."""
    workload: dict[Name, WorkloadType] = Field(min_length=1, max_length=256)
    """The request types by name. Their shares add up to 1."""
    profile: dict[str, JsonValue] | None = Field(default=None, min_length=1, max_length=16)
    """The throughput of the app's options and its provenance, in the format of a profile. Without it, the controller
    measures the options."""
    profiling_seconds: int = Field(default=600, ge=1, le=86_400)
    """Device time in seconds in which the measurements end, with wider intervals if it is short. The time of a
    measurement counts once for each GPU of the replica."""

    rules = (
        exactly_one("gpus", "gpus_of", "rate"),
        SpecRule(
            lambda inputs: inputs.objective is None or (inputs.objective == "goodput") == (inputs.rate is None),
            "!has(self.objective) || (self.objective == 'goodput') != has(self.rate)",
            "gpus and dollars are costs that a rate minimizes, and goodput needs gpus or gpus_of: remove the objective",
            field="objective",
        ),
        SpecRule(
            lambda inputs: not inputs.gpu_counts or inputs.profile is not None,
            "!has(self.gpuCounts) || self.gpuCounts.size() == 0 || has(self.profile)",
            "options are measured on the GPUs of their executors: set profile, or remove the numbers of GPUs",
            field="gpu_counts",
        ),
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        total = fsum(kind.share for kind in self.workload.values())
        if abs(total - 1) > SHARES_TOLERANCE:
            raise ValueError(f"the shares of the workload add up to {total:g}, not 1")
        size = len(self.model_dump_json(exclude_defaults=True).encode())
        if size > MAX_PLANNING_BYTES:
            raise ValueError(
                f"the inputs of the plan have {size} bytes as JSON: at most {MAX_PLANNING_BYTES} are allowed, remove "
                "entries of the profile"
            )
        return self

    @property
    def digest(self) -> str:
        """A hash of the inputs, which depends neither on the form of their numbers nor on fields without a value."""
        fields = _with_whole_numbers(self.model_dump(mode="json", exclude_defaults=True))
        return sha256(dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def workload_digest(self) -> str:
        """A hash of the request types, without their shares: the measurements depend on it."""
        types: JsonValue = [[name, [*kind.components], {**kind.sizes}] for name, kind in sorted(self.workload.items())]
        return sha256(dumps(_with_whole_numbers(types), sort_keys=True).encode()).hexdigest()[:12]

    def with_mix(self, plan: AppPlan, shares: Mapping[str, float]) -> Self:
        """Returns the inputs for observed shares of the types of a plan that was made from these inputs.

        The new plan is for the target of the running plan. Without a target, it is for the GPUs that run now, which
        users may have scaled, and of each type for at least those of `gpus_of`.
        """
        workload = {
            name: WorkloadType(
                components=list(kind.components),
                share=shares.get(name, 0.0),
                sizes=self.workload[name].sizes if name in self.workload else {},
                frequency=self.workload[name].frequency if name in self.workload else {},
            )
            for name, kind in plan.types.items()
        }
        budget: dict[str, object] = {"gpus": None, "gpus_of": None, "rate": plan.target, "objective": self.objective}
        if plan.target is None:
            budget |= {"objective": self.objective if self.objective == "goodput" else None} | (
                {"gpus": plan.gpus} if self.gpus_of is None else {"gpus_of": _at_least(self.gpus_of, plan.gpus_of)}
            )
        return self.model_copy(update={"workload": workload, **budget})


def _at_least(limits: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    return {gpu: max(limit, used.get(gpu, 0)) for gpu, limit in limits.items()}


class AppProfile(SpecModel):
    """The profile of an app that the controller has had measured."""

    profile: dict[str, JsonValue] = Field(min_length=1, max_length=16)
    """The throughput of the app's options and its provenance, in the format of a profile."""
    gpu_type: GpuTypeName | None = None
    """The type of GPUs or slots on which the options were measured, if the executors need to select it."""
    measured_from: str = Field(pattern="^[0-9a-f]{12}$", max_length=12)
    """The digest of the code and of the request types for which the options were measured."""

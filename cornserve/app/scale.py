"""Changes of the size of an app: replicas, or the mixture of cells of its plan."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, Self, Unpack

from annotated_types import Gt
from pydantic import AllowInfNan, BaseModel, ConfigDict, Field, ValidationError, model_validator

from cornserve.app.adaptation_status import MixtureProposal, PlanProposal
from cornserve.app.plan import AppPlan
from cornserve.app.settings import MAX_EXECUTOR_OVERRIDES, MAX_REPLICAS, ExecutorName, HoldSeconds
from cornserve.app.spec import AppSpec, SpecChanges
from cornserve.validation_errors import describe_all
from cornserve_policies.mixture import MAX_RUNNING_CELLS, cells_for_gpus, cells_for_rate


class ScaleError(Exception):
    """An app cannot be scaled in this way. The message is for users."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class Scale(BaseModel):
    """The request to change the numbers of replicas of executors, or the cells of a planned app.

    At most one of the fields but `hold_seconds` is set. `hold_seconds` may be set with it or alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    """The number of replicas of each executor."""
    executors: dict[ExecutorName, Annotated[int, Field(ge=1, le=MAX_REPLICAS)]] | None = Field(
        default=None, min_length=1, max_length=MAX_EXECUTOR_OVERRIDES
    )
    """The numbers of replicas of single executors, by name. The others keep theirs. In an app with a plan, they are
    those of all cells together."""
    rate: Annotated[float, Gt(0), AllowInfNan(False)] | None = None
    """The requests per second to serve with cells on the fewest GPUs."""
    gpus: int | None = Field(default=None, ge=1)
    """The number of GPUs on which cells serve the most requests."""
    approve: Literal[True] | None = None
    """Runs the plan or the cells that the app's adaptation to the load proposes."""
    hold_seconds: HoldSeconds | None = None
    """The time in which the load changes nothing, from now on. With 0, the app follows its load at once. By default,
    that of the app's policy if the size changes."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = self._sizes
        if len(given) > 1 or (not given and self.hold_seconds is None):
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"{' and '.join(given) or 'nothing'} is given: give one of {known}")
        return self

    @property
    def _sizes(self) -> list[str]:
        """The fields that are set, without `hold_seconds`."""
        fields = (name for name in type(self).model_fields if name != "hold_seconds")
        return [name for name in fields if getattr(self, name) is not None]

    @property
    def given_field(self) -> str:
        """The field that is set: a size if there is one, otherwise `hold_seconds`."""
        return next(iter(self._sizes), "hold_seconds")


def scaled_spec(
    name: str, spec: AppSpec, scale: Scale, now: datetime, proposal: MixtureProposal | PlanProposal | None = None
) -> AppSpec:
    """Returns the spec of the app `name` with another size, which holds for some time from now on.

    Args:
        proposal: the proposal for this spec, if there is one.

    Raises:
        ScaleError: the app cannot be scaled in this way.
    """
    if scale.hold_seconds is not None and spec.hold_seconds is None:
        raise ScaleError(
            "hold_seconds", f"the app {name!r} does not follow its load: its size holds until you change it"
        )
    scaled = spec if scale.given_field == "hold_seconds" else _resized_spec(name, spec, scale, proposal)
    seconds = scale.hold_seconds
    if seconds is None and scale.approve is None:
        seconds = spec.hold_seconds
    if seconds is None:
        return scaled
    until = (now + timedelta(seconds=seconds)).replace(microsecond=0)
    return scaled.changed(held_until=until if seconds else None)


def _resized_spec(name: str, spec: AppSpec, scale: Scale, proposal: MixtureProposal | PlanProposal | None) -> AppSpec:
    if scale.executors is not None:
        return _changed(spec, scale, executor_replicas={**spec.executor_replicas, **scale.executors})
    if scale.replicas is not None:
        if spec.is_planned:
            raise ScaleError(
                "replicas",
                f"the app {name!r} has a plan: scale single executors, or the app to a rate or a number of GPUs, or "
                "deploy it with replicas",
            )
        if scale.replicas == 0:
            return spec.changed(replicas=0)
        return spec.changed(replicas=scale.replicas, executor_replicas={})
    if spec.plan is None:
        raise ScaleError(
            scale.given_field, f"the app {name!r} has no plan: scale its replicas, or deploy it with a plan"
        )
    if scale.approve is None:
        return _changed(spec, scale, plan=_scaled_plan(spec.plan, scale), executor_replicas={})
    if proposal is None:
        raise ScaleError(
            "approve",
            f"no change of the app {name!r} waits for an approval: `cornserve status {name}` shows the one that does",
        )
    return spec.changed(plan=_approved_plan(spec.plan, proposal))


def _changed(spec: AppSpec, scale: Scale, **fields: Unpack[SpecChanges]) -> AppSpec:
    try:
        return spec.changed(**fields)
    except ValidationError as error:
        raise ScaleError(scale.given_field, describe_all(error.errors())) from None


def _approved_plan(plan: AppPlan, proposal: MixtureProposal | PlanProposal) -> AppPlan:
    if isinstance(proposal, MixtureProposal):
        return plan.with_counts(proposal.counts, proposal.target)
    if proposal.obstacle:
        raise ScaleError("approve", f"the plan cannot replace the running one: {proposal.obstacle}")
    return proposal.plan


def _scaled_plan(plan: AppPlan, scale: Scale) -> AppPlan:
    rates = plan.efficient_rates
    if scale.gpus is not None:
        counts = cells_for_gpus(rates, scale.gpus)
        if not counts:
            raise ScaleError("gpus", f"no cell fits in {scale.gpus}: the smallest cell has {min(rates)} GPUs")
    else:
        assert scale.rate is not None
        counts = cells_for_rate(rates, scale.rate)
    if (running := sum(counts.values())) > MAX_RUNNING_CELLS:
        raise ScaleError(
            "gpus" if scale.rate is None else "rate",
            f"the app would run {running} cells, the largest with {max(rates)} GPUs: at most {MAX_RUNNING_CELLS} may "
            "run, make a plan with larger cells",
        )
    return plan.with_counts(counts, scale.rate)

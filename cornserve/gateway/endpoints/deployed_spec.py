"""The spec that a deployment stores, given the current one."""

from __future__ import annotations

from typing import cast

from pydantic import ValidationError

from cornserve.app.executor_names import check_autoscaled_cell, check_executor_names
from cornserve.app.plan_resolution import resolve_plan
from cornserve.app.spec import REQUIRED_PLAN, AppSpec, SpecChanges
from cornserve.app_host.description import AppDescription
from cornserve.gateway.errors import ApiError
from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all

KEPT_FIELDS = {"replicas", "executor_replicas", "plan", "planning", "measured", "held_until", "restart"}
"""Fields that a deployment without them does not change."""


def deployed_spec(spec: AppSpec, current: AppSpec, description: AppDescription) -> AppSpec:
    """Returns the spec with the fields of the current one that its deployment does not change. Raises `ApiError`."""
    try:
        return spec.changed(**_kept_fields(spec, current, description))
    except ValidationError as error:
        raise ApiError(400, describe_all(error.errors()), code="invalid_app") from None


def _kept_fields(spec: AppSpec, current: AppSpec, description: AppDescription) -> SpecChanges:
    """Returns the fields of the current spec that a deployment of `spec` does not change.

    Replicas and plans replace each other and the numbers of single executors, and end the hold of the earlier ones.
    Adaptation replaces the numbers of single executors, too.
    """
    kept = KEPT_FIELDS - spec.model_fields_set
    if spec.plan is not None or "replicas" in spec.model_fields_set:
        kept -= {"replicas", "executor_replicas", "plan", "planning", "measured", "held_until"}
    elif spec.planning is not None:
        kept -= {"replicas", "executor_replicas", "plan", "held_until"}
    if spec.policies.adaptation is not None:
        kept -= {"executor_replicas"}
    fields = cast(SpecChanges, {field: getattr(current, field) for field in kept})
    names = {each.executor for each in description.executor_specs.values()}
    if "executor_replicas" in fields:
        fields["executor_replicas"] = {
            name: count for name, count in current.executor_replicas.items() if name in names
        }
    if "restart" in fields and current.restart is not None:
        executors = {name: text for name, text in current.restart.executors.items() if name in names}
        fields["restart"] = current.restart.model_copy(update={"executors": executors})
    return fields


def check_executors(spec: AppSpec, description: AppDescription) -> None:
    """Checks that plan and replicas are those of this app, before anything is stored. Raises `ApiError`."""
    if not REQUIRED_PLAN.holds(spec):
        message = f"{REQUIRED_PLAN.field}: {REQUIRED_PLAN.message}"
        raise ApiError(400, message, param=REQUIRED_PLAN.field, code="invalid_app")
    try:
        check_executor_names(spec, description.executor_specs)
    except DefinitionError as error:
        raise ApiError(400, str(error), code="invalid_app") from error
    if spec.plan is not None:
        try:
            plan = resolve_plan(spec.plan, description.graph)
        except DefinitionError as error:
            raise ApiError(400, str(error), param="plan", code="invalid_plan") from error
        try:
            check_autoscaled_cell(spec, description.executor_specs, plan)
        except DefinitionError as error:
            raise ApiError(400, str(error), param="policies.autoscaling", code="invalid_app") from error

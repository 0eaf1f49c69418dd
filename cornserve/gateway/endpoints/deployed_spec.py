"""The spec that a deployment stores, given the current one."""

from __future__ import annotations

from typing import Any

from cornserve.app.plan_resolution import resolve_plan
from cornserve.app.record import AppSpec
from cornserve.app_host.description import AppDescription
from cornserve.gateway.errors import ApiError
from cornserve.task.errors import DefinitionError

KEPT_FIELDS = {"replicas", "plan", "restart"}
"""Fields that a deployment without them does not change."""


def kept_fields(spec: AppSpec, current: AppSpec) -> dict[str, Any]:
    """Returns the fields of the current spec that a deployment of `spec` does not change.

    Replicas and plans replace each other.
    """
    kept = KEPT_FIELDS - spec.model_fields_set
    if spec.plan is not None or "replicas" in spec.model_fields_set:
        kept -= {"replicas", "plan"}
    return {field: getattr(current, field) for field in kept}


def check_plan(spec: AppSpec, description: AppDescription) -> None:
    """Checks that a plan is one of this app, before anything is stored. Raises `ApiError`."""
    if spec.plan is not None:
        try:
            resolve_plan(spec.plan, description.graph)
        except DefinitionError as error:
            raise ApiError(400, str(error), param="plan", code="invalid_plan") from error

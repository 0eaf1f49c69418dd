"""The record by which an app adapts to its load."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cornserve.app.record import FailureReason, Phase
from cornserve.app.spec import AppSpec
from cornserve.control.store.base import AppRecord

_PLAN_FAILURES: Final = {FailureReason.INSUFFICIENT_CAPACITY, FailureReason.PLANNING_FAILED}


def with_served_plan(record: AppRecord, served: AppSpec | None) -> AppRecord:
    """Returns the record of an app with the plan that serves, if the plan of its newest generation has failed.

    The app continues to adapt to its load with this plan, and the next change replaces the failed plan. An app whose
    changes need an approval waits until users have corrected the plan.

    Args:
        served: the spec that serves.
    """
    spec, status = record.spec, record.status
    has_failed = status.phase is Phase.FAILED and status.generation == record.generation
    if not has_failed or status.reason not in _PLAN_FAILURES or not spec.is_planned:
        return record
    if served is None or served.plan is None or spec.policies.adaptation is None or spec.policies.adaptation.approval:
        return record
    plan = served.plan.model_copy(update={"planned_from": ""})  # It was not made from the newest inputs.
    adapted = spec.changed(plan=plan, held_until=None)
    if adapted.model is not None and served.model is not None:
        adapted = adapted.with_model(shares=served.model.shares)
    if adapted.code != served.code:
        return record
    return replace(record, spec=adapted, status=status.model_copy(update={"phase": Phase.SERVING}))

"""Makes the plans of apps whose specs have only the inputs of a plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from cornserve.app.graph import no_graph_reason
from cornserve.app.load import with_all_paths
from cornserve.app.record import AppSpec
from cornserve.app_host.describe import DescribeApp
from cornserve.control.planner import Planner
from cornserve.control.planning_worker import PlanningJob
from cornserve.control.store.base import (
    APPS,
    AppRecord,
    ConflictError,
    FieldConflictError,
    NotFoundError,
    RecordRejectedError,
    RecordTooLargeError,
    Store,
)
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.task.errors import DefinitionError

log = logging.getLogger(__name__)


class InitialPlans:
    """Stores each plan in the spec, as a new generation.

    Args:
        store: the store of the specs as users have written them.
        describe: describes an app; its graph is the planner's model.
    """

    def __init__(self, store: Store, describe: DescribeApp, planner: Planner) -> None:
        self._store = store
        self._describe = describe
        self._planner = planner

    async def make(self, record: AppRecord) -> str:
        """Makes and stores the plan of an app. Returns the reason for users if none can be made, else an empty text.

        Raises an error if another attempt may succeed.
        """
        name, planning = record.name, record.spec.planning
        assert planning is not None
        try:
            spec = await run_in_daemon_thread(_with_paths, record.spec)
            description = await self._describe(name, spec)
        except DefinitionError as error:
            return str(error)
        if description.graph is None:
            return no_graph_reason(name)
        result = await self._planner(PlanningJob(app=name, graph=description.graph, inputs=planning))
        if result.plan is None:
            return result.error
        fields = {"plan": result.plan.model_copy(update={"planned_from": planning.digest}), "shares": spec.shares}
        try:
            await self._update(record, fields)
        except (FieldConflictError, RecordRejectedError, RecordTooLargeError) as error:
            return str(error)
        log.info("app %s: the plan serves %.4g requests/s on %d GPUs", name, result.plan.rate, result.plan.gpus)
        return ""

    async def _update(self, record: AppRecord, fields: Mapping[str, object]) -> None:
        """Changes the spec unless someone else has changed it: the watch then delivers a newer generation."""
        with suppress(NotFoundError):
            while True:
                stored = await self._store.get(APPS, record.name)
                if (stored.uid, stored.generation) != (record.uid, record.generation):
                    return
                with suppress(ConflictError):  # The status has changed.
                    spec = stored.spec.model_copy(update=fields)
                    await self._store.update_spec(APPS, record.name, spec, stored.version)
                    return


def _with_paths(spec: AppSpec) -> AppSpec:
    """Returns the spec without a plan, with all paths of a model's family unless shares are given. Reads its files."""
    planned = spec.model_copy(update={"plan": None, "planning": None})
    return planned if spec.shares is not None else with_all_paths(planned)

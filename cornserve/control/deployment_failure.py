"""Failures of generations."""

from __future__ import annotations

from dataclasses import dataclass, field

from cornserve.app.record import FailureReason
from cornserve.app.spec import AppSpec
from cornserve.control.app_version import AppVersion, Managers
from cornserve.control.launcher.base import Launcher
from cornserve.task.errors import DefinitionError

LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a generation has failed."""

    reason: FailureReason
    message: str
    logs: list[str] = field(default_factory=list)


def loading_failure(spec: AppSpec, error: DefinitionError) -> Failure:
    """Returns the failure of a version that cannot be loaded."""
    is_missing = spec.source is not None and spec.source.inline is None
    return Failure(FailureReason.SOURCE_NOT_FOUND if is_missing else FailureReason.IMPORT_FAILED, str(error))


async def find_failure(newest: AppVersion, managers: Managers, launcher: Launcher) -> Failure | None:
    """Returns why an executor of the version cannot start, or None."""
    for manager in newest.select_managers(managers):
        if manager.refusal:
            return Failure(manager.refusal.reason, str(manager.refusal))
        failed = manager.failed_replica
        if failed is not None:
            reason = FailureReason.INSUFFICIENT_CAPACITY if failed.unschedulable else FailureReason.EXECUTOR_FAILED
            logs = await launcher.logs(failed.id, LOG_LINES)
            return Failure(reason, f"{failed.group} did not start: {failed.message}", logs)
    return None

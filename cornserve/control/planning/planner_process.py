"""Makes plans in worker processes, which block neither the event loop nor the machine."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pydantic import ValidationError

from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.preparation import AttemptError

TIMEOUT_SECONDS = 600.0
"""The longest time of a plan."""

MAX_ERROR_CHARACTERS = 500

MAX_PLANNERS = 2
"""The most planner processes at a time, of all apps. Each takes a core."""

Planner = Callable[[PlanningJob], Awaitable[PlanningResult]]
"""Makes a plan. Raises `PlannerProcessError` if the process fails; another attempt may succeed."""


class PlannerProcessError(AttemptError):
    """The process that makes a plan has failed."""


def limit_planners(planner: Planner, most: int = MAX_PLANNERS) -> Planner:
    """Returns a planner that makes at most this many plans at a time. Other jobs wait."""
    free = asyncio.Semaphore(most)

    async def run(job: PlanningJob) -> PlanningResult:
        async with free:
            return await planner(job)

    return run


async def run_planner(job: PlanningJob) -> PlanningResult:
    """Makes a plan in a process, which ends if the caller is cancelled. Raises `PlannerProcessError`."""
    command = [sys.executable, "-m", "cornserve.control.planning.worker"]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, errors = await process.communicate(job.model_dump_json().encode())
    except TimeoutError:
        raise PlannerProcessError(f"the planner has not finished after {TIMEOUT_SECONDS:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    try:
        return PlanningResult.model_validate_json(output)
    except ValidationError:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        message = f"the planner exited with code {process.returncode}: {last[:MAX_ERROR_CHARACTERS]}"
        raise PlannerProcessError(message) from None

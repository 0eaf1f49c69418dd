"""An executor with two engine processes that outlive it.

The engines change their names and ignore SIGTERM. One of them has its own session.
"""

from __future__ import annotations

import asyncio
import multiprocessing

from pydantic import BaseModel

from cornserve import Output
from cornserve_executors.base import Executor, InvocationContext, ProgressReporter

ENGINE = "trap '' TERM; echo; exec -a VLLM::EngineCore sleep 1000"


class EmptyRequest(BaseModel):
    pass


class OrphaningExecutor(Executor[EmptyRequest, EmptyRequest, Output]):
    async def start(self, report_progress: ProgressReporter) -> None:
        for own_session in (False, True):
            engine = await asyncio.create_subprocess_exec(
                "bash", "-c", ENGINE, stdout=asyncio.subprocess.PIPE, start_new_session=own_session
            )
            assert engine.stdout is not None
            await engine.stdout.readline()
            print(f"engine {engine.pid}", flush=True)
        self.lock = multiprocessing.get_context("spawn").Lock()  # A file in /dev/shm while this process runs.

    async def invoke(self, request: EmptyRequest, context: InvocationContext) -> Output:
        return Output()

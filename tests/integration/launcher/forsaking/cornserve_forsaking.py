"""An executor with engines that outlive it, one in a session of its own: they have another name, and do not end when
asked to."""

from __future__ import annotations

import asyncio
import multiprocessing

from pydantic import BaseModel

from cornserve import Output
from cornserve_executors.base import Executor, InvocationContext, ProgressReporter

ENGINE = "trap '' TERM; echo; exec -a VLLM::EngineCore sleep 1000"


class Nothing(BaseModel):
    pass


class ForsakingExecutor(Executor[Nothing, Nothing, Output]):
    async def start(self, report_progress: ProgressReporter) -> None:
        for apart in (False, True):
            engine = await asyncio.create_subprocess_exec(
                "bash", "-c", ENGINE, stdout=asyncio.subprocess.PIPE, start_new_session=apart
            )
            assert engine.stdout is not None
            await engine.stdout.readline()
            print(f"engine {engine.pid}", flush=True)
        self.lock = multiprocessing.get_context("spawn").Lock()  # a file in /dev/shm while this process lives

    async def invoke(self, request: Nothing, context: InvocationContext) -> Output:
        return Output()

"""Executors that do what executors with engines do in containers. Each is an entry point `containers-NAME`."""

from __future__ import annotations

import asyncio
import sys
import time

from pydantic import BaseModel

from cornserve import Output
from cornserve_executors.base import Executor, InvocationContext, ProgressReporter


class NoInput(BaseModel):
    pass


class OrphanMaker(Executor[NoInput, NoInput, Output]):
    """Starts processes that lose their parent and end."""

    async def start(self, report_progress: ProgressReporter) -> None:
        for _ in range(3):
            parent = await asyncio.create_subprocess_exec("sh", "-c", "(read -r _ </proc/self/stat) & exit 0")
            await parent.wait()

    async def invoke(self, request: NoInput, context: InvocationContext) -> Output:
        return Output()


def __getattr__(name: str) -> type:
    """Takes long for the class `SlowImport`, as the import of an engine does."""
    if name != "SlowImport":
        raise AttributeError(name)
    print("importing", file=sys.stderr, flush=True)
    time.sleep(1000)
    return OrphanMaker

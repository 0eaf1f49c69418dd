"""Runs one job: `python -m benchmarks.harness.load JOB`, with the job as JSON; prints the result as JSON."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

import uvloop
from pydantic import TypeAdapter
from pydantic_core import to_json

from benchmarks.harness.load.http import chat_load
from benchmarks.harness.load.invocations import invocation_load
from benchmarks.harness.load.job import LoadJob, LoadResult
from benchmarks.harness.load.measurement import Measurement


async def run(job: LoadJob) -> LoadResult:
    measurement = Measurement(job)
    async with (chat_load if job.protocol == "chat" else invocation_load)(job, measurement):
        return await measurement.run()


def main() -> None:
    job = TypeAdapter(LoadJob).validate_json(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(run(job))
    sys.stdout.buffer.write(to_json(asdict(result)))


if __name__ == "__main__":
    main()

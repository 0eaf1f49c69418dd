"""Runs one job: `python -m benchmarks.harness.load JOB`, with the job as JSON; prints the result as JSON."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

import uvloop
from pydantic import TypeAdapter
from pydantic_core import to_json

from benchmarks.harness.load.http import chatting
from benchmarks.harness.load.invocations import invoking
from benchmarks.harness.load.job import Job, Result
from benchmarks.harness.load.tally import Tally


async def run(job: Job) -> Result:
    tally = Tally(job)
    async with (chatting if job.protocol == "chat" else invoking)(job, tally):
        return await tally.measure()


def main() -> None:
    job = TypeAdapter(Job).validate_json(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(run(job))
    sys.stdout.buffer.write(to_json(asdict(result)))


if __name__ == "__main__":
    main()

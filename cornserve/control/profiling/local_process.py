"""Measures the options of apps in child processes of a controller, on the local launcher."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from cornserve.access import ADMIN_TOKEN, API_KEY
from cornserve.control.profiling.job import PROFILER_TOKEN, ProfilerProcessError, ProfilingJob, ProfilingMessage
from cornserve.home import Home
from cornserve.instance import Instance
from cornserve.instance_secret import InstanceSecret, InstanceSecretError

MAX_LINE_BYTES: Final = 16 * 1024 * 1024

STOP_SECONDS: Final = 10.0
"""Time in which a stopped process deletes its temporary app."""


async def run_local_profiler(home: Home, job: ProfilingJob) -> AsyncGenerator[ProfilingMessage, None]:
    """Runs the process, whose results are kept in the home. Raises `ProfilerProcessError`."""
    instance = Instance.read(home)
    if instance is None:
        raise ProfilerProcessError(f"{home.instance} does not describe the instance")
    job = job.model_copy(update={"home": home.path, "gateway": instance.gateways[0]})
    environment = os.environ | _access(home)
    command = [sys.executable, "-m", "cornserve.profiler.worker"]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=environment, limit=MAX_LINE_BYTES
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job.model_dump_json().encode() + b"\n")
        with suppress(ConnectionError):
            await process.stdin.drain()
        async for line in process.stdout:
            if (message := job.message(line.decode())) is not None:
                yield message
        if code := await process.wait():
            raise ProfilerProcessError(f"the profiler exited with code {code}: see the log of the controller")
    finally:
        await _stop(process)


def _access(home: Home) -> dict[str, str]:
    """Returns the environment of the process: the controller does not have the admin token."""
    try:
        token = InstanceSecret.load(home.secret).token(PROFILER_TOKEN)
    except InstanceSecretError as error:
        raise ProfilerProcessError(str(error)) from error
    return {ADMIN_TOKEN: token, API_KEY: ""}  # Without an API key, clients send the admin token.


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()

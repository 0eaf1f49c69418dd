"""The shared memory of executors that produce tensors and have nothing to do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cornserve.instance_secret import InstanceSecret
from cornserve_echo.notes import NoteTask
from tests.integration.transport.worker import MIB
from tests.waiting import until

EXECUTORS = 50
LIMIT = 200 * MIB


@asynccontextmanager
async def running_executor(shared_memory: Path, secret: Path) -> AsyncIterator[None]:
    options = ("--secret", str(secret), "--shared-memory", str(shared_memory))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cornserve_executors.base", "--spec", NoteTask().spec.model_dump_json(), *options)
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_idle_executors_have_little_shared_memory(shared_memory: Path, tmp_path: Path) -> None:
    InstanceSecret.load_or_create(tmp_path / "secret")

    async with AsyncExitStack() as stack:
        for _ in range(EXECUTORS):
            await stack.enter_async_context(running_executor(shared_memory, tmp_path / "secret"))
        await until(lambda: len(slabs(shared_memory)) == EXECUTORS, seconds=240)

        assert sum(slabs(shared_memory)) < LIMIT


def slabs(directory: Path) -> list[int]:
    """Returns the memory of each slab."""
    return [size for path in directory.iterdir() if (size := path.stat().st_blocks * 512) > MIB]

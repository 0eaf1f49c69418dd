"""The executor as the first process of a container: signals, orphans, exit status, termination message."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cornserve.task import ExecutorSpec
from cornserve.v1 import executor_pb2 as pb
from tests.credentials import write_secret
from tests.executor_caller import calling
from tests.free_ports import free_port
from tests.namespaces import running_node
from tests.waiting import until

STOP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Container:
    process: Process
    port: int
    health_port: int
    termination_log: Path

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def first_process(self) -> psutil.Process:
        """The process with the id 1 in the container: the child of `unshare`."""
        [first] = psutil.Process(self.process.pid).children()
        return first

    async def read_log_until(self, text: str) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(STOP_SECONDS):
            while line := await self.process.stderr.readline():
                if text in line.decode():
                    return
        pytest.fail(f"the log does not contain {text!r}")

    async def exit_status(self) -> int:
        async with asyncio.timeout(STOP_SECONDS):
            return await self.process.wait()


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the executors of this directory, for the processes that are started."""
    metadata = tmp_path / "packages" / "cornserve_containers-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cornserve-containers\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[cornserve.executors]\n"
        "containers-orphans = cornserve_containers:OrphanMaker\n"
        "containers-slow-import = cornserve_containers:SlowImport\n"
    )
    inherited = os.environ.get("PYTHONPATH", "")
    paths = [str(metadata.parent), str(Path(__file__).parent), inherited]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@asynccontextmanager
async def running_container(directory: Path, executor: str, **config: Any) -> AsyncIterator[Container]:
    termination_log, shared_memory = directory / "termination-log", directory / "shared-memory"
    termination_log.touch()
    shared_memory.mkdir()
    port, health_port = free_port(), free_port()
    async with running_node(shared_memory, size_mib=1) as node:
        process = await asyncio.create_subprocess_exec(
            *(*node.pod(), sys.executable, "-m", "cornserve_executors.base"),
            *("--spec", ExecutorSpec(executor=executor, config=config).model_dump_json()),
            *("--listen", f"0.0.0.0:{port}", "--health-port", str(health_port), "--peer-network", "0.0.0.0/0"),
            *("--secret", str(write_secret(directory)), "--shared-memory", str(shared_memory)),
            *("--termination-log", str(termination_log)),
            stderr=PIPE,
        )
        try:
            yield Container(process, port, health_port, termination_log)
        finally:
            if process.returncode is None:
                process.kill()  # also kills the container
                await process.wait()


async def test_the_executor_drains_when_the_container_is_terminated(tmp_path: Path) -> None:
    async with running_container(tmp_path, "echo") as container:
        await container.read_log_until("ready")
        async with calling(container.endpoint) as caller:
            start = pb.Start(request_id="r", request=b'{"text": "one two", "seconds": 0.2}', outputs=["words"])
            caller.send(pb.Command(call=1, start=start))
            assert (await caller.read()) is not None

            container.first_process.send_signal(signal.SIGTERM)

            caller.finish()
            events = [event async for event in caller]
            assert events[-1].end.code == pb.CODE_OK
        assert await container.exit_status() == 0


async def test_all_addresses_of_the_container_accept_connections_and_probes(tmp_path: Path) -> None:
    async with running_container(tmp_path, "echo") as container:
        await container.read_log_until("ready")

        for address in ("127.0.0.1", "127.0.0.2"):
            async with calling(f"{address}:{container.port}") as caller:
                caller.send(pb.Command(call=1, start=pb.Start(request_id="r", request=b'{"text": "one"}')))
                event = await caller.read()
                assert event is not None
                assert event.end.code == pb.CODE_OK
            await until(partial(is_serving, f"{address}:{container.health_port}"))


async def is_serving(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        check = await stub.Check(health_pb2.HealthCheckRequest())  # type: ignore[attr-defined]  # added at run time
        return bool(check.status == health_pb2.HealthCheckResponse.SERVING)


async def test_termination_ends_an_executor_that_imports_its_engine(tmp_path: Path) -> None:
    async with running_container(tmp_path, "containers-slow-import") as container:
        await container.read_log_until("importing")

        container.first_process.send_signal(signal.SIGTERM)

        assert await container.exit_status() == 128 + signal.SIGTERM


async def test_orphans_are_reaped(tmp_path: Path) -> None:
    async with running_container(tmp_path, "containers-orphans") as container:
        await container.read_log_until("ready")

        await until(lambda: len(container.first_process.children(recursive=True)) == 1)


async def test_the_container_reports_the_signal_that_killed_the_executor(tmp_path: Path) -> None:
    async with running_container(tmp_path, "echo") as container:
        await container.read_log_until("ready")
        [executor] = container.first_process.children()

        executor.kill()

        assert await container.exit_status() == 128 + signal.SIGKILL


async def test_the_termination_message_is_the_reason_for_the_failure(tmp_path: Path) -> None:
    async with running_container(tmp_path, "echo", fail_start="no words here") as container:
        assert await container.exit_status() == 1

        assert container.termination_log.read_text() == "the executor failed: RuntimeError: no words here"


async def test_the_termination_message_names_invalid_settings(tmp_path: Path) -> None:
    async with running_container(tmp_path, "echo", start_seconds="soon") as container:
        assert await container.exit_status() == 2

        message = container.termination_log.read_text()
        assert message.startswith("invalid settings for the executor 'echo': start_seconds: ")

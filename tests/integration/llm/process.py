"""Starts and stops an executor process as a launcher does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cornserve.task import UnitTask
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.invocations import OBSERVER
from tests.credentials import write_secret
from tests.free_ports import free_port
from tests.raw_connection import authenticated_socket

START_SECONDS = 180
"""Sufficient for cold caches on a busy machine."""
STOP_SECONDS = 30


@dataclass(frozen=True)
class ExecutorProcess:
    process: psutil.Popen
    endpoint: str
    metrics_port: int
    log: Path

    def observations(self) -> Iterator[pb.Observation]:
        """Yields the state that the executor reports, until the process ends."""
        connection = authenticated_socket(self.endpoint, OBSERVER.preamble)
        connection.settimeout(START_SECONDS)
        with connection, connection.makefile("rb") as stream:
            while header := stream.read(4):
                yield pb.Observation.FromString(stream.read(int.from_bytes(header, "big")))

    def until_ready(self) -> None:
        assert any(observation.phase == pb.PHASE_READY for observation in self.observations()), self.log.read_text()

    async def metrics(self) -> dict[str, float]:
        """Returns the metrics without labels, and those whose only label is the modality."""
        samples = await self._samples()
        return {sample.name: sample.value for sample in samples if sample.labels.keys() <= {"modality"}}

    async def held_bytes(self) -> float:
        """Returns the memory of the tensors that the executor keeps."""
        samples = await self._samples()
        name, labels = "cornserve_transport_slab_bytes", {"state": "held"}
        return sum(sample.value for sample in samples if sample.name == name and sample.labels == labels)

    async def _samples(self) -> list[Sample]:
        async with httpx.AsyncClient() as client:
            response = await client.get(f"http://127.0.0.1:{self.metrics_port}/metrics")
        return [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]

    def engine_process(self) -> psutil.Process:
        """Returns vLLM's engine process."""
        processes = {process.pid: process for process in self.remaining_processes()}
        children = (process for process in processes.values() if process.ppid() in processes)
        (engine,) = (child for child in children if "multiprocessing.resource_tracker" not in " ".join(child.cmdline()))
        return engine

    def remaining_processes(self) -> list[psutil.Process]:
        """Returns all processes that write the executor's log, even if their parent is dead."""
        return [process for process in psutil.process_iter() if _output(process) == str(self.log)]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def last_line(self) -> str:
        return self.log.read_text().splitlines()[-1]


@contextmanager
def running_executor(
    task: UnitTask[Any, Any], directory: Path, *options: str, environment: Mapping[str, str] = {}
) -> Iterator[ExecutorProcess]:
    """Starts an executor, which listens but may not be ready, and stops it with SIGTERM when the block ends.

    Asserts that the exit status is 0 and that no process remains. The process may also exit before.

    Args:
        environment: variables to add.
    """
    executor = _start(task, directory, options, environment)
    try:
        yield executor
        if executor.process.poll() is None:
            executor.terminate()
            assert executor.process.wait(STOP_SECONDS) == 0, executor.log.read_text()
        # Python's resource tracker takes a moment to notice that its parent is gone.
        assert not psutil.wait_procs(executor.remaining_processes(), timeout=STOP_SECONDS)[1]
    finally:
        for process in executor.remaining_processes():
            process.kill()


def _start(
    task: UnitTask[Any, Any], directory: Path, options: Sequence[str], environment: Mapping[str, str]
) -> ExecutorProcess:
    log, announcement, metrics_port = directory / "log", directory / "endpoint", free_port()
    command = [
        *(sys.executable, "-m", "cornserve_executors.base"),
        *("--spec", task.executor_spec().model_dump_json()),
        *("--secret", str(write_secret(directory))),
        *("--announce", str(announcement)),
        *("--metrics-port", str(metrics_port)),
        *options,
    ]
    with log.open("w") as output:
        process = psutil.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while not announcement.exists():
        assert process.poll() is None, log.read_text()
        time.sleep(0.01)
    return ExecutorProcess(process, announcement.read_text().splitlines()[0], metrics_port, log)


def _output(process: psutil.Process) -> str | None:
    """Returns the standard output of a process, but not of one that has ended and waits for its parent."""
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1")
    except OSError:
        return None

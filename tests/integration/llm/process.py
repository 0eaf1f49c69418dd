"""An executor process, started and ended as a launcher would."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_tasklib import LLMTask

START_SECONDS = 180
"""Cold caches and a busy machine included."""
STOP_SECONDS = 30


@dataclass(frozen=True)
class ExecutorProcess:
    process: psutil.Popen
    endpoint: str
    metrics_port: int
    log: Path

    def reports(self) -> Iterator[pb.Observation]:
        """What it says about its state, from now until it ends."""
        with grpc.insecure_channel(self.endpoint) as channel:
            observe = executor_pb2_grpc.ExecutorStub(channel).Observe
            yield from observe(pb.ObserveRequest(), wait_for_ready=True, timeout=START_SECONDS)

    def until_ready(self) -> None:
        assert any(report.phase == pb.PHASE_READY for report in self.reports())

    async def figures(self) -> dict[str, float]:
        """Its metrics that have no labels."""
        async with httpx.AsyncClient() as client:
            response = await client.get(f"http://127.0.0.1:{self.metrics_port}/metrics")
        families = text_string_to_metric_families(response.text)
        return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}

    def engine(self) -> psutil.Process:
        """vLLM's engine process."""
        (engine,) = (child for child in self.process.children() if "EngineCore" in child.name())
        return engine

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def last_line(self) -> str:
        return self.log.read_text().splitlines()[-1]


@contextmanager
def running(task: LLMTask, folder: Path) -> Iterator[ExecutorProcess]:
    """The process listens, but is not ready. It may have ended itself; if not, SIGTERM ends it well."""
    executor = _start(task, folder)
    try:
        yield executor
        if executor.process.poll() is None:
            children = executor.process.children(recursive=True)
            executor.terminate()
            assert executor.process.wait(STOP_SECONDS) == 0, executor.log.read_text()
            assert not psutil.wait_procs(children, timeout=2)[1]
    finally:
        _kill(executor.process)


def _start(task: LLMTask, folder: Path) -> ExecutorProcess:
    log, announcement, metrics_port = folder / "log", folder / "endpoint", _free_port()
    command = [
        *(sys.executable, "-m", "cornserve_executors.base"),
        *("--spec", task.executor_spec().model_dump_json()),
        *("--announce", str(announcement)),
        *("--metrics-port", str(metrics_port)),
    ]
    with log.open("w") as output:
        process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    while not announcement.exists():
        assert process.poll() is None, log.read_text()
    return ExecutorProcess(process, announcement.read_text(), metrics_port, log)


def _kill(process: psutil.Popen) -> None:
    if process.poll() is None:
        for each in [*process.children(recursive=True), process]:
            each.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

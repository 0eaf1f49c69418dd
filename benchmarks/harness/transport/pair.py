"""Starts the two processes of the benchmark and sends them commands."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.transport.namespaces import NetworkHost
from cornserve.pull_protocol import PullProtocol

SMALL_SLAB = 64 << 20
LARGE = 256 << 20
IDLE_SECONDS = 1.0


class BenchmarkProcess:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = str(self.read_response())

    def send(self, command: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()

    def read_response(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark has ended: see its error above")
        return json.loads(line)

    def call(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.read_response()


@dataclass(frozen=True, slots=True)
class Hops:
    """Durations of hops in µs, in order."""

    hops: Sequence[float]
    seconds: float
    cpu_seconds: float
    """CPU time of both processes."""


@dataclass(frozen=True, slots=True)
class Pair:
    producer: BenchmarkProcess
    consumer: BenchmarkProcess
    nbytes: int
    directory: Path

    def measure(self, mode: str, count: int, *, is_copied: bool = False, **arguments: Any) -> tuple[Hops, Any]:
        """Runs `count` hops in a mode of `TransportSide`. Returns them and the producer's result."""
        before = self.cpu_seconds()
        self.consumer.send("consume", endpoint=self.producer.endpoint, count=count, is_copied=is_copied)
        self.consumer.read_response()
        result = self.producer.call(mode, count=count, **arguments)
        measured = self.consumer.read_response()
        return Hops(measured["hops"], measured["seconds"], self.cpu_seconds() - before), result

    def stream(self, count: int, *, is_burst: bool) -> Hops:
        """Sends `count` chunks of one stream, one by one or as fast as the consumer reads."""
        before = self.cpu_seconds()
        self.consumer.send("consume_stream", endpoint=self.producer.endpoint)
        self.consumer.read_response()
        self.producer.call("stream", count=count, is_burst=is_burst)
        measured = self.consumer.read_response()
        return Hops(measured["hops"], measured["seconds"], self.cpu_seconds() - before)

    def pickled(self, count: int) -> list[float]:
        """Returns the durations in µs with `multiprocessing.shared_memory` and pickled announcements."""
        path = str(self.directory / "pickled")
        self.producer.send("pickled", path=path, count=count)
        self.producer.read_response()
        hops = self.consumer.call("unpickled", path=path, count=count)
        self.producer.read_response()
        return list(hops)

    def sockets(self, count: int) -> list[float]:
        """Returns the durations in µs with a plain socket that sends the same bytes on request."""
        self.producer.send("sent", count=count)
        port = self.producer.read_response()
        host = self.producer.endpoint.rpartition(":")[0]
        durations = self.consumer.call("fetched", host=host, port=port, count=count)
        self.producer.read_response()
        return list(durations)

    def idle_cores(self) -> float:
        """Returns the CPU use of both processes with open connections, and without tensors."""
        before = self.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        return (self.cpu_seconds() - before) / IDLE_SECONDS

    def cpu_seconds(self) -> float:
        return sum(float(process.call("cpu_seconds")) for process in (self.producer, self.consumer))


@contextmanager
def pair(
    nbytes: int, producer: NetworkHost, consumer: NetworkHost, protocol: PullProtocol, *, is_shared: bool
) -> Iterator[Pair]:
    """Starts a producer and a consumer of tensors of one size."""
    slab_bytes = 2 * nbytes if nbytes > LARGE else max(SMALL_SLAB, 6 * nbytes)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cornserve-benchmark-") as name:
        directory = Path(name)
        directories = [directory, directory] if is_shared else [directory / "1", directory / "2"]
        for subdirectory in directories:
            subdirectory.mkdir(exist_ok=True)
        with (
            _side(directories[0], producer, nbytes, slab_bytes, protocol) as first,
            _side(directories[1], consumer, nbytes, slab_bytes, protocol) as second,
        ):
            yield Pair(BenchmarkProcess(first), BenchmarkProcess(second), nbytes, directory)


@contextmanager
def _side(
    directory: Path, host: NetworkHost, nbytes: int, slab_bytes: int, protocol: PullProtocol
) -> Iterator[subprocess.Popen[str]]:
    module = "benchmarks.harness.transport.side"
    arguments = (directory, host.address, nbytes, slab_bytes, protocol)
    command = [*host.prefix, sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise

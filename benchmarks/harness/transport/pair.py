"""The two processes, as the benchmark sees them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.transport.namespaces import Host

SMALL_SLAB = 64 << 20
LARGE = 256 << 20


class Process:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = str(self.hear())

    def tell(self, what: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark has died: see above")
        return json.loads(line)

    def ask(self, what: str, **arguments: Any) -> Any:
        self.tell(what, **arguments)
        return self.hear()


@dataclass(frozen=True, slots=True)
class Hops:
    """µs each, in order."""

    hops: Sequence[float]
    seconds: float
    cpu_seconds: float
    """Of both processes."""


@dataclass(frozen=True, slots=True)
class Pair:
    producer: Process
    consumer: Process
    nbytes: int
    directory: Path

    def measure(self, how: str, count: int, *, is_copied: bool = False, **arguments: Any) -> tuple[Hops, Any]:
        """Hops, and what the producer says of them."""
        before = self.cpu_seconds()
        self.consumer.tell("consume", endpoint=self.producer.endpoint, count=count, is_copied=is_copied)
        self.consumer.hear()
        said = self.producer.ask(how, count=count, **arguments)
        measured = self.consumer.hear()
        return Hops(measured["hops"], measured["seconds"], self.cpu_seconds() - before), said

    def pickled(self, count: int) -> list[float]:
        """µs of `multiprocessing.shared_memory` with a pickled announcement."""
        path = str(self.directory / "pickled")
        self.producer.tell("pickled", path=path, count=count)
        self.producer.hear()
        hops = self.consumer.ask("unpickled", path=path, count=count)
        self.producer.hear()
        return list(hops)

    def sockets(self, count: int) -> list[float]:
        """µs of a plain socket that sends the same bytes from memory to memory, on being asked."""
        self.producer.tell("sent", count=count)
        port = self.producer.hear()
        host = self.producer.endpoint.rpartition(":")[0]
        fetched = self.consumer.ask("fetched", host=host, port=port, count=count)
        self.producer.hear()
        return list(fetched)

    def cpu_seconds(self) -> float:
        return sum(float(process.ask("cpu_seconds")) for process in (self.producer, self.consumer))


@contextmanager
def pair(nbytes: int, producer: Host, consumer: Host, *, is_shared: bool) -> Iterator[Pair]:
    """A producer and a consumer of tensors of one size."""
    slab_bytes = 2 * nbytes if nbytes > LARGE else max(SMALL_SLAB, 6 * nbytes)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cornserve-benchmark-") as name:
        directory = Path(name)
        places = [directory, directory] if is_shared else [directory / "1", directory / "2"]
        for place in places:
            place.mkdir(exist_ok=True)
        with (
            _side(places[0], producer, nbytes, slab_bytes) as first,
            _side(places[1], consumer, nbytes, slab_bytes) as second,
        ):
            yield Pair(Process(first), Process(second), nbytes, directory)


@contextmanager
def _side(directory: Path, host: Host, nbytes: int, slab_bytes: int) -> Iterator[subprocess.Popen[str]]:
    module = "benchmarks.harness.transport.side"
    command = [*host.prefix, sys.executable, "-m", module, str(directory), host.address, str(nbytes), str(slab_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise

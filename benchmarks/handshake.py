#!/usr/bin/env python3
"""Measures the cost of connecting to a process of the instance: duration, and CPU time of both processes.

Each connection carries one message in each direction and is closed before the next one: after the handshake, after the
handshake with TLS, and, for comparison, without both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from cornserve.instance_secret import InstanceSecret
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire import sockets
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials, TlsFiles
from cornserve.wire.invocations import CALLER, EXECUTOR
from cornserve.wire.listener import ConnectionListener

KINDS = ("no handshake", "handshake", "handshake and TLS")
COMMAND = pb.Command(call=1, start=pb.Start(request_id="benchmark"))


def credentials(kind: str, directory: Path) -> ConnectionCredentials:
    tls = TlsFiles(directory) if "TLS" in kind else None
    return ConnectionCredentials(InstanceSecret.load_or_create(directory / "secret"), tls)


async def serve(kind: str, directory: Path, parent: Connection) -> None:
    """Accepts connections until the parent sends a message; responds with its own CPU time."""

    def create() -> MessageConnection[pb.Event, pb.Command]:
        connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(
            EXECUTOR,
            lambda command: connection.finish() if command is None else connection.send(pb.Event(call=command.call)),
        )
        return connection

    if kind == KINDS[0]:
        server = await asyncio.get_running_loop().create_server(create, "127.0.0.1", 0)
        parent.send(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    else:
        listener = ConnectionListener({EXECUTOR.preamble: create}, credentials(kind, directory))
        parent.send(await listener.listen("127.0.0.1:0"))
    started = time.process_time()
    await asyncio.to_thread(parent.recv)
    parent.send(time.process_time() - started)


def run_server(kind: str, directory: Path, parent: Connection) -> None:
    uvloop.run(serve(kind, directory, parent))


async def exchange(connect: Callable[[MessageConnection[pb.Command, pb.Event]], Awaitable[None]]) -> float:
    """Returns the seconds until the first response."""
    responded, started = asyncio.Event(), time.perf_counter()
    connection: MessageConnection[pb.Command, pb.Event] = MessageConnection(CALLER, lambda event: responded.set())
    await connect(connection)
    connection.send(COMMAND)
    await responded.wait()
    elapsed = time.perf_counter() - started
    connection.abort("measured")
    await connection.wait_closed()
    return elapsed


async def measure(kind: str, endpoint: str, directory: Path, count: int) -> tuple[list[float], float]:
    """Returns the seconds of each connection, and the CPU seconds of this process."""
    host, port = sockets.split_endpoint(endpoint)
    loop = asyncio.get_running_loop()
    secret = credentials(kind, directory)

    async def connect(connection: MessageConnection[pb.Command, pb.Event]) -> None:
        if kind == KINDS[0]:
            await loop.create_connection(lambda: connection, host, port)
        else:
            await connection.connect(endpoint, secret)

    started = time.process_time()
    seconds = [await exchange(connect) for _ in range(count)]
    return seconds, time.process_time() - started


def create_certificate(directory: Path) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "tls.key")
    command = ["openssl", "req", "-x509", *key, "-subj", "/CN=benchmark", "-out", "tls.crt"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    (directory / "ca.crt").write_bytes((directory / "tls.crt").read_bytes())


@dataclass(frozen=True, slots=True)
class HandshakeRow:
    kind: str
    p50_us: float
    p99_us: float
    connecting_cpu_us: float
    accepting_cpu_us: float


def measure_kind(kind: str, directory: Path, count: int) -> HandshakeRow:
    spawn = get_context("spawn")
    own, other = spawn.Pipe()
    server = spawn.Process(target=run_server, args=(kind, directory, other), daemon=True)
    server.start()
    seconds, cpu = uvloop.run(measure(kind, own.recv(), directory, count))
    own.send("end")
    server_cpu = own.recv()
    server.join()
    p50, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    return HandshakeRow(kind, *(value * 1e6 for value in (p50, p99, cpu / count, server_cpu / count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=2000, metavar="N")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    machine = MachineInfo.current()
    connections = 20 if options.quick else options.connections
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as name:
        create_certificate(Path(name))
        rows = [measure_kind(kind, Path(name), connections) for kind in KINDS]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
        return
    table = create_table(("",), ("p50, µs", "p99, µs", "µs CPU, connecting", "µs CPU, accepting"))
    for row in rows:
        figures = (row.p50_us, row.p99_us, row.connecting_cpu_us, row.accepting_cpu_us)
        table.add_row(row.kind, *(f"{figure:.0f}" for figure in figures))
    print_report(machine, f"{connections} connections of each kind", table)


if __name__ == "__main__":
    main()

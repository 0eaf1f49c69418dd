#!/usr/bin/env python3
"""Compares Cornserve with `vllm serve` for one model: throughput and CPU time outside of the engine.

Both servers run at the same time with equal settings of the engine. `vllm bench serve` sends the same requests to one
and the other in turns, for each API and each number in flight. The CPU time is that of all processes of the server but
the engine's.

    benchmarks/vllm_server.py ~/models/SmolLM2-135M-Instruct
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import cpu_seconds
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.vllm_serve import running_vllm
from cornserve.home import Home
from cornserve.instance import Instance
from cornserve_executors.vllm.settings import threads

NAME: Final = "model"
APIS: Final[Mapping[str, tuple[str, str]]] = {
    "chat": ("openai-chat", "/v1/chat/completions"),
    "completions": ("openai", "/v1/completions"),
}
"""The backend of `vllm bench serve` and the path, by the name of the API."""
SETTINGS: Final = {"max_model_len": 2048, "kv_cache_memory_bytes": 512 << 20}
ON_CPU: Final = ("--dtype", "float32", "--enforce-eager", "--distributed-executor-backend", "uni")
"""The settings that Cornserve's executors choose on a CPU."""
BENCH_SERVE: Final = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve`. The command `vllm` needs a distribution of this name, which builds for CPUs do not have."""


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    url: str
    process: int
    """The id of the process whose descendants belong to the server, too."""

    def cpu_seconds_outside_engine(self) -> float:
        root = psutil.Process(self.process)
        processes = [root, *root.children(recursive=True)]
        return sum(cpu_seconds(process.pid) for process in processes if not _is_engine(process))


@dataclass(frozen=True, slots=True)
class ServerRow:
    """The medians of all rounds."""

    api: str
    concurrency: int
    server: str
    requests_per_second: float
    cpu_ms: float
    """CPU time outside of the engine for each request, without that of the idle server in the same time."""


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    rows = measure(options)
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
        return
    table = create_table(("API", "server"), ("in flight", "requests/s", "CPU ms outside of the engine"))
    for row in rows:
        table.add_row(row.api, row.server, str(row.concurrency), f"{row.requests_per_second:.2f}", f"{row.cpu_ms:.1f}")
    note = (
        f"{options.input} tokens of input and {options.output} of output, medians of {options.rounds} rounds: "
        f"{options.model.name}"
    )
    print_report(machine, note, table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=lambda path: Path(path).resolve(), help="directory of a language model")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32], metavar="N", help="default: 1 8 32")
    parser.add_argument("--requests", type=int, default=8, help="requests for each in flight (default: 8)")
    parser.add_argument("--input", type=int, default=64, metavar="TOKENS", help="length of prompts (default: 64)")
    parser.add_argument("--output", type=int, default=32, metavar="TOKENS", help="length of responses (default: 32)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle", type=float, default=12.0, metavar="SECONDS", help="wait before (default: 12)")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.concurrency, options.requests, options.rounds, options.output, options.settle = [2], 1, 1, 4, 1
    return options


def measure(options: argparse.Namespace) -> list[ServerRow]:
    with (
        tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as name,
        running_servers(options.model, Path(name)) as servers,
    ):
        time.sleep(options.settle)
        idle = {server.name: _idle_share(server, 1 if options.quick else 10) for server in servers}
        return [
            row
            for api in APIS
            for concurrency in options.concurrency
            for row in _rows(servers, api, concurrency, idle, options)
        ]


def _rows(
    servers: Sequence[Server], api: str, concurrency: int, idle: Mapping[str, float], options: argparse.Namespace
) -> list[ServerRow]:
    figures: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
    for round in range(options.rounds):
        for server in servers if round % 2 == 0 else reversed(servers):
            figures[server.name].append(_run(server, api, concurrency, idle[server.name], options))
    return [
        ServerRow(api, concurrency, name, *(statistics.median(values) for values in zip(*found, strict=True)))
        for name, found in figures.items()
    ]


def _run(server: Server, api: str, concurrency: int, idle: float, options: argparse.Namespace) -> tuple[float, float]:
    """Returns the requests per second, and the CPU milliseconds outside of the engine for each of them."""
    backend, path = APIS[api]
    requests = concurrency * options.requests
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as directory:
        command = [
            *(sys.executable, "-c", BENCH_SERVE),
            *("--backend", backend, "--base-url", server.url, "--endpoint", path),
            *("--model", NAME, "--tokenizer", str(options.model), "--dataset-name", "random", "--ignore-eos"),
            *("--random-input-len", str(options.input), "--random-output-len", str(options.output)),
            *("--num-prompts", str(requests), "--max-concurrency", str(concurrency), "--disable-tqdm"),
            *("--save-result", "--result-dir", directory, "--result-filename", "result.json"),
        ]
        before, started = server.cpu_seconds_outside_engine(), time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        passed = time.monotonic() - started
        used = server.cpu_seconds_outside_engine() - before - idle * passed
        if ended.returncode:
            raise RuntimeError(
                f"vllm bench serve failed at {server.name}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
            )
        result = json.loads((Path(directory) / "result.json").read_text())
    if result["completed"] != requests:
        raise RuntimeError(f"{server.name}: {result['completed']} of {requests} requests succeeded")
    sent = requests + 1  # The first request of the benchmark is a test.
    return float(result["request_throughput"]), 1000 * used / sent


def _idle_share(server: Server, seconds: float) -> float:
    """Returns the CPU time per second of an idle server, without the engine."""
    before = server.cpu_seconds_outside_engine()
    time.sleep(seconds)
    return (server.cpu_seconds_outside_engine() - before) / seconds


def _is_engine(process: psutil.Process) -> bool:
    return "EngineCore" in " ".join([process.name(), *process.cmdline()])


@contextmanager
def running_servers(model: Path, directory: Path) -> Iterator[Sequence[Server]]:
    """Serves the model with both servers until the block ends."""
    instance = SlotInstance(directory / "instance", 1)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    flags += ["--served-model-name", NAME, *ON_CPU]
    environment = {
        "OMP_NUM_THREADS": str(threads()),
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # The model runs in the engine's process.
    }
    with instance.started() as client, running_vllm(model, directory, *flags, environment=environment) as vllm:
        options = [part for name, value in SETTINGS.items() for part in ("--option", f"{name}={value}")]
        instance.cornserve("deploy", str(model), "--name", NAME, *options)
        running = Instance.find_running(Home(instance.directory / "home"))
        assert running is not None
        yield [Server("Cornserve", client.url, running.pid), Server("vllm serve", vllm.url, vllm.process)]


if __name__ == "__main__":
    main()

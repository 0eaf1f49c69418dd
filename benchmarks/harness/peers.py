"""Runs the peers of the gateway in a benchmark: other proxies, in front of one common engine."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.instance import START_TIMEOUT_SECONDS, free_port
from benchmarks.harness.load.http import chat_body
from benchmarks.harness.processes import CoreAssignment, running_process

PEERS_DIRECTORY = Path(__file__).resolve().parent.parent / "peers"

INSTALL_DIRECTORY = PEERS_DIRECTORY / ".venv" / "bin"
"""The environment that `benchmarks/peers/install` creates."""

ALL = ("vllm-router", "fastapi-aiohttp", "asgi-aiohttp", "raw-uvloop")


def missing(names: Sequence[str]) -> list[str]:
    """Returns the peers that are not installed."""
    return [name for name in names if name == "vllm-router" and not (INSTALL_DIRECTORY / name).exists()]


@dataclass(frozen=True, slots=True)
class PeerProcess:
    address: str
    process: int
    engine: int
    """The engine's process id."""


@contextmanager
def peers(names: Sequence[str], cores: CoreAssignment, logs: Path) -> Iterator[Mapping[str, PeerProcess]]:
    """Starts all peers. They are idle except for the one that is measured."""
    with ExitStack() as cleanup:
        if not names:
            yield {}
            return
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.peers.engine", str(port)]
        engine = cleanup.enter_context(running_process(command, logs / "engine.log", cores.others))
        _wait_until_serving(engine, port, logs / "engine.log")
        started = {}
        for name in names:
            log, peer_port = logs / f"{name}.log", free_port()
            process = cleanup.enter_context(
                running_process(_command(name, peer_port, f"127.0.0.1:{port}"), log, cores.gateway)
            )
            _wait_until_serving(process, peer_port, log)
            started[name] = PeerProcess(f"127.0.0.1:{peer_port}", process.pid, engine.pid)
        yield started


def _command(name: str, port: int, engine: str) -> list[str]:
    if name == "vllm-router":
        listen = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
        workers = ["--worker-urls", f"http://{engine}", "--policy", "round_robin", "--log-level", "warning"]
        return [str(INSTALL_DIRECTORY / name), *listen, *workers]
    module = {"fastapi-aiohttp": "fastapi_proxy", "asgi-aiohttp": "bare_asgi", "raw-uvloop": "raw_uvloop"}[name]
    return [sys.executable, "-m", f"benchmarks.peers.{module}", str(port), engine]


def _wait_until_serving(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Waits until the process responds to a chat."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if _responds(port):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} does not respond:\n{log.read_text(errors='replace')[-2000:]}")


def _responds(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/v1/chat/completions", chat_body("whole"), {"content-type": "application/json"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()

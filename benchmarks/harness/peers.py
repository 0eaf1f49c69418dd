"""The peers that a benchmark measures the gateway beside, all of them before one engine."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.instance import START_SECONDS, free_port
from benchmarks.harness.load.http import chat
from benchmarks.harness.processes import Cores, running

FOLDER = Path(__file__).resolve().parent.parent / "peers"

INSTALLED = FOLDER / ".venv" / "bin"
"""Where `benchmarks/peers/install` puts what is no part of our environment."""

ALL = ("vllm-router", "fastapi-aiohttp", "asgi-aiohttp", "raw-uvloop")


def missing(names: Sequence[str]) -> list[str]:
    """Those of them that have to be installed first."""
    return [name for name in names if name == "vllm-router" and not (INSTALLED / name).exists()]


@dataclass(frozen=True, slots=True)
class Peer:
    address: str
    process: int
    engine: int
    """Process id of the engine behind it."""


@contextmanager
def peers(names: Sequence[str], cores: Cores, logs: Path) -> Iterator[Mapping[str, Peer]]:
    """All are up at once, and idle but for the one that is measured."""
    with ExitStack() as cleanup:
        if not names:
            yield {}
            return
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.peers.engine", str(port)]
        engine = cleanup.enter_context(running(command, logs / "engine.log", cores.others))
        _await(engine, port, logs / "engine.log")
        started = {}
        for name in names:
            log, at = logs / f"{name}.log", free_port()
            process = cleanup.enter_context(running(_command(name, at, f"127.0.0.1:{port}"), log, cores.gateway))
            _await(process, at, log)
            started[name] = Peer(f"127.0.0.1:{at}", process.pid, engine.pid)
        yield started


def _command(name: str, port: int, engine: str) -> list[str]:
    if name == "vllm-router":
        at = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
        to = ["--worker-urls", f"http://{engine}", "--policy", "round_robin", "--log-level", "warning"]
        return [str(INSTALLED / name), *at, *to]
    module = {"fastapi-aiohttp": "fastapi_proxy", "asgi-aiohttp": "bare_asgi", "raw-uvloop": "raw_uvloop"}[name]
    return [sys.executable, "-m", f"benchmarks.peers.{module}", str(port), engine]


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it answers a chat."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(port):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} does not answer:\n{log.read_text(errors='replace')[-2000:]}")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    try:
        connection.request("POST", "/v1/chat/completions", chat("whole"), {"content-type": "application/json"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()

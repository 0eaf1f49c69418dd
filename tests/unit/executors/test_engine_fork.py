"""Forks of executors on vLLM."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cornserve_executors.vllm import engine_fork, settings
from cornserve_tasklib import EngineOptions, LLMTask

PEER_OF_A_FORKED_PROCESS = """
import os, socket, sys, time
from cornserve_executors.vllm import engine_fork, settings
from cornserve_tasklib import LLMTask

settings.on_cpu = lambda: True
settings.threads = lambda: 1
engine_fork.fork_if_safe(LLMTask(model_id="m"))
assert os.environ[engine_fork.METHOD] == "fork"
ours, peer = socket.socketpair()
started, report = os.pipe()
child = os.fork()
if not child:
    peer.close()
    os.write(report, b"started")
    time.sleep(1000)
os.read(started, 10)
ours.close()
print(peer.recv(10))
assert os.waitpid(child, os.WNOHANG) == (0, 0)
os.kill(child, 9)
"""


def test_a_forked_process_does_not_hold_the_connections_of_its_parent() -> None:
    script = subprocess.run(
        [sys.executable, "-c", PEER_OF_A_FORKED_PROCESS], capture_output=True, text=True, timeout=60, check=False
    )

    assert (script.returncode, script.stdout) == (0, "b''\n"), script.stderr


@pytest.mark.parametrize(
    ("on_cpu", "threads", "workers", "modules"),
    [(False, 1, 1, []), (True, 2, 1, []), (True, 1, 2, []), (True, 1, 1, ["cornserve_executors.base.health"])],
    ids=["gpu", "threads", "workers", "grpc"],
)
def test_vllm_does_not_fork_where_it_is_unsafe(
    monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool, threads: int, workers: int, modules: list[str]
) -> None:
    monkeypatch.delenv(engine_fork.METHOD, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(settings, "on_cpu", lambda: on_cpu)
    monkeypatch.setattr(settings, "threads", lambda: threads)
    monkeypatch.setattr(sys, "modules", dict.fromkeys(modules))

    engine_fork.fork_if_safe(LLMTask(model_id="m", options=EngineOptions(tensor_parallel_size=workers)))

    assert engine_fork.METHOD not in os.environ

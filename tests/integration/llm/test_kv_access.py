"""A KV cache in shared memory, next to processes of another user and without the secret of the instance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cornserve.instance_secret import InstanceSecret
from cornserve.wire import sockets
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.handshake import HandshakeError
from cornserve_tasklib import EngineOptions, PrefillTask
from tests.executor_caller import calling
from tests.integration.llm.client import connected
from tests.integration.llm.conftest import CONTEXT
from tests.integration.llm.process import ExecutorProcess, running_executor
from tests.integration.llm.test_chat import ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
NOBODY = 65534


@dataclass(frozen=True)
class Prefill:
    executor: ExecutorProcess
    files: list[str]
    """The slab, the secret and the address, in directories that others can enter."""

    def sockets(self) -> list[str]:
        """Returns the sockets that receive the engine's messages about copies."""
        processes = self.executor.remaining_processes()
        addresses = {str(each.laddr) for process in processes for each in process.net_connections("unix")}
        return [address for address in addresses if address.endswith("/messages")]


@pytest.fixture(scope="module")
def prefill(
    tiny_llama: Path, fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prefill]:
    options = EngineOptions(max_model_len=CONTEXT, kv_cache_memory_bytes=64 << 20)
    task = PrefillTask(model_id=str(tiny_llama), options=options)
    directory = tmp_path_factory.mktemp("prefill")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cornserve-test-") as memory:
        arguments = ("--slab-mib", "64", "--shared-memory", memory)
        with running_executor(task, directory, *arguments, environment=fork_variables) as executor:
            executor.until_ready()
            for each in (directory, *directory.parents[:2], Path(memory)):
                each.chmod(0o755)
            files = [directory / "secret", directory / "endpoint", *Path(memory).glob("*.slab")]
            yield Prefill(executor, [str(file) for file in files])


def run_stranger(prefill: Prefill) -> dict[str, Any]:
    """Returns what a process of another user could do."""
    host, port = sockets.split_endpoint(prefill.executor.endpoint)
    job = {
        "uid": NOBODY,
        "host": host,
        "port": port,
        "open_ports": [],
        "files": prefill.files,
        "sockets": prefill.sockets(),
        "pids": [process.pid for process in prefill.executor.remaining_processes()],
        "flood_seconds": 0,
    }
    command = [sys.executable, "-m", "tests.integration.security.stranger", json.dumps(job)]
    outcome: dict[str, Any] = json.loads(
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout
    )
    return outcome


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
async def test_another_user_can_neither_read_nor_replace_a_kv_cache(prefill: Prefill) -> None:
    async with connected(prefill.executor.endpoint) as client:
        invocation = await client.start(ask("corn " * 60, max_tokens=2), stream=False)
        assert (await invocation.reply()).code == "OK"
        held = await prefill.executor.held_bytes()

        outcome = run_stranger(prefill)

        assert held > 0
        assert len(prefill.files) == 3
        assert len(prefill.sockets()) == 1
        assert outcome["readable"] == outcome["sent"] == outcome["environment"] == []
        assert set(outcome["responses"].values()) == {0}
        assert await prefill.executor.held_bytes() == held
        invocation.release()


async def test_a_caller_with_another_secret_is_refused(prefill: Prefill) -> None:
    with pytest.raises(HandshakeError):
        async with calling(prefill.executor.endpoint, ConnectionCredentials(InstanceSecret(bytes(32)))):
            pass
